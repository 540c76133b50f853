-- Counts a kind among those of the deployment, before it is made.
--
-- KEYS    the kinds of the deployment
-- ARGV    the kind, how many there may be
-- Answer  0; or how many there would be, where that is too many
-- State   stays
local kinds, name, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])
local count = redis.call('SCARD', kinds) + 1
if count > limit and redis.call('SISMEMBER', kinds, name) == 0 then return count end
redis.call('SADD', kinds, name)
return 0
