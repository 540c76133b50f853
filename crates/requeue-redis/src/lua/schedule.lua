-- Keeps a schedule, in place of one of the same id.
--
-- ARGV    now or '', '1' if the kind is among the kinds of the deployment, id, schedule, how many
--         there may be
-- Answer  1; 0: the kind is not among those of the deployment, and nothing was done; -1: there
--         are too many
-- State   stays
local SCHEDULES = KEYS[9]
if ARGV[2] == '' and call('EXISTS', META) == 0 then return 0 end
if call('HEXISTS', SCHEDULES, ARGV[3]) == 0 and call('HLEN', SCHEDULES) >= tonumber(ARGV[5]) then return -1 end
call('HSETNX', META, 'generation', 0)
call('HSET', SCHEDULES, ARGV[3], ARGV[4])
return 1
