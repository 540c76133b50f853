-- Ends leases that lapsed, and drops dead jobs that are not to be kept.
--
-- ARGV    now or '', how many of each at most
-- Answer  how many
-- State   leased and lapsed -> ready, waiting, dead or absent; dead -> absent
local max = tonumber(ARGV[2])
local before = head()
local lapsed = call('ZRANGE', LEASED, '-inf', text(now), 'BYSCORE', 'LIMIT', 0, max, 'WITHSCORES')
for i = 1, #lapsed, 2 do
  local due = lapse(lapsed[i], tonumber(lapsed[i + 1]))
  if due then call('ZADD', DUE, due, lapsed[i]) end
end
if lapsed[1] then
  local at = head()
  if at < before then wake(at) end
end
return #lapsed / 2 + drop_dead(max)
