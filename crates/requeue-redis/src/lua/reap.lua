-- Ends leases that expired, and drops dead jobs that are not to be kept.
--
-- ARGV    now or '', how many of each at most
-- Answer  how many; id, worker, attempt and whether the job died (1 or 0) of each lease that it ended
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
