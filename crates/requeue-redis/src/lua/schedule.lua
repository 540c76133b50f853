-- Stores a schedule, and replaces the one with the same id.
--
-- ARGV    now or ''; '1' if the kind is registered in the deployment, else ''; id; schedule; max. number of
--         schedules
-- Reply   1 stored; 0 the kind is not registered and nothing was done; -1 too many schedules
-- State   unchanged
local SCHEDULES = KEYS[9]
if ARGV[2] == '' and call('EXISTS', META) == 0 then return 0 end
if call('HEXISTS', SCHEDULES, ARGV[3]) == 0 and call('HLEN', SCHEDULES) >= tonumber(ARGV[5]) then return -1 end
call('HSETNX', META, 'generation', 0)
call('HSET', SCHEDULES, ARGV[3], ARGV[4])
return 1
