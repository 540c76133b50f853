-- Looks when a claim may get something.
--
-- ARGV    now or ''
-- Answer  in how many milliseconds; -1: never, if nobody changes anything
-- State   stays
local set = call('HMGET', META, 'paused', 'concurrency')
return soonest(set[1], room(set[2]))
