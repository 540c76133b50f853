-- Ends expired leases, and drops dead jobs past their retention and done jobs that need not be kept.
--
-- ARGV    now or ''; max. number of each
-- Reply   number of leases ended and jobs dropped; id, worker, attempt and 1 if the job died (else 0) of
--         each expired lease that it ended
-- State   leased and expired -> ready, waiting, dead or absent; dead, done -> absent
local max = tonumber(ARGV[2])
local before, ended = head(), 0
for i = 1, #leaseds do
  local expired = call('ZRANGE', leaseds[i], '-inf', text(now), 'BYSCORE', 'LIMIT', 0, max - ended, 'WITHSCORES')
  for n = 1, #expired, 2 do
    local due = expiry(expired[n], tonumber(expired[n + 1]))
    if due then call('ZADD', dues[i], due, expired[n]) end
    ended = ended + 1
  end
end
if ended > 0 then
  local at = head()
  if at < before then wake(at) end
end
local dropped = drop_old(DEAD, KEPT_DEAD, max)
if levels then
  dropped = dropped + drop_old(DONE, KEPT_DONE, max)
  -- A kind that has no jobs uses no priorities: those it has used need not slow down its claims for ever.
  if levels ~= '' and call('EXISTS', JOB) == 0 then call('HSET', META, 'levels', '') end
end
return { ended + dropped, reports }
