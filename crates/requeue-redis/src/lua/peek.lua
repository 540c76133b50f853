-- Returns when the next claim may find a job.
--
-- ARGV    now or ''
-- Reply   milliseconds until then; -1 if never, unless something changes
-- State   unchanged
local set = call('HMGET', META, 'paused', 'concurrency', 'levels')
if set[3] then
  if not DONE then return { ok = 'MORE KEYS' } end
  use_levels(set[3])
  read_rate()
end
return soonest(set[1], room(set[2]))
