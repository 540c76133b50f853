-- Adds a kind to the kinds of the deployment. Must be called before the kind is created.
--
-- KEYS    the set of kinds of the deployment
-- ARGV    name of the kind; max. number of kinds
-- Reply   0 if the kind is in the set; otherwise the number of kinds there would be, which is too many
-- State   unchanged
local kinds, name, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])
local count = redis.call('SCARD', kinds) + 1
if count > limit and redis.call('SISMEMBER', kinds, name) == 0 then return count end
redis.call('SADD', kinds, name)
return 0
