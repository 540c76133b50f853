-- Returns when the next claim may find a job.
--
-- ARGV    now or ''
-- Reply   milliseconds until then; -1 if never, unless something changes
-- State   unchanged
local set = call('HMGET', META, 'paused', 'concurrency', 'levels', 'rate_jobs')
local limits = (set[2] or set[4]) and load_limits(now)
return soonest(set[1], limits and limits.free() or math.huge, set[3], limits)
