-- Returns when the next claim may find a job.
--
-- ARGV    now or ''
-- Reply   milliseconds until then; -1 if never, unless something changes
-- State   unchanged
local set = call('HMGET', META, 'paused', 'concurrency')
return soonest(set[1], room(set[2]))
