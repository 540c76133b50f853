-- Removes a kind that has no jobs, settings and schedules.
--
-- ARGV    now or ''; generation and fence after which new kinds begin
-- Reply   1 the kind is removed, or there was none; 0 it has something, or higher numbers
-- State   unchanged
local set = call('HMGET', META, 'generation', 'fence', 'lease')
if tonumber(set[1] or 0) > tonumber(ARGV[2]) or tonumber(set[2] or 0) > tonumber(ARGV[3]) then return 0 end
if set[3] or call('EXISTS', JOB) == 1 or call('EXISTS', SCHEDULES) == 1 then return 0 end
-- Whoever is creating the kind has to begin again.
call('HDEL', META, 'generation', 'fence', 'levels', 'rate_parts', 'rate_at', 'making')
return 1
