-- Ends expired leases, and drops dead jobs past their retention.
--
-- ARGV    now or ''; max. number of each
-- Reply   number of leases ended and jobs dropped; id, worker, attempt and 1 if the job died (else 0) of
--         each expired lease that it ended
-- State   leased and expired -> ready, waiting, dead or absent; dead -> absent
local max = tonumber(ARGV[2])
local before = head()
local expired = call('ZRANGE', LEASED, '-inf', text(now), 'BYSCORE', 'LIMIT', 0, max, 'WITHSCORES')
for i = 1, #expired, 2 do
  local due = expiry(expired[i], tonumber(expired[i + 1]))
  if due then call('ZADD', DUE, due, expired[i]) end
end
if expired[1] then
  local at = head()
  if at < before then wake(at) end
end
return { #expired / 2 + drop_dead(max), reports }
