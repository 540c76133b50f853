-- Ends expired leases, and drops dead jobs past their retention and done jobs that need not be kept.
--
-- ARGV    now or ''; max. number of each
-- Reply   number of leases ended and jobs dropped; id, worker, attempt and 1 if the job died (else 0) of
--         each expired lease that it ended
-- State   leased and expired -> ready, waiting, dead or absent; dead, done -> absent
local max = tonumber(ARGV[2])
local levels = call('HGET', META, 'levels')
local before, ended = head(levels), 0
for _, base in ipairs(bases_of(levels)) do
  local from, upto = text(base), text(base + now)
  local expired = call('ZRANGE', LEASED, from, upto, 'BYSCORE', 'LIMIT', 0, max - ended, 'WITHSCORES')
  for n = 1, #expired, 2 do
    local due = expiry(levels, expired[n], tonumber(expired[n + 1]))
    if due then call('ZADD', DUE, text(base + due), expired[n]) end
    ended = ended + 1
  end
end
if ended > 0 then
  local at = head(levels)
  if at < before then wake(at) end
end
local dropped = drop_old(DEAD, KEPT_DEAD, max) + drop_old(DONE, KEPT_DONE, max)
-- A kind that has no jobs uses no priorities: those it has used need not slow down its claims for ever.
if levels and call('EXISTS', JOB) == 0 then call('HDEL', META, 'levels') end
return { ended + dropped, reports }
