-- Adds a kind to the kinds of the deployment. Must be called after `begin` and before the kind is created.
--
-- KEYS    the set of kinds of the deployment; the numbers of their registrations; what is left of removed kinds
-- ARGV    name of the kind; max. number of kinds
-- Reply   the number of kinds there would be if that is too many, otherwise 0; the generation and the fence after
--         which the kind begins
-- State   unchanged
local kinds, registered, removed = unpack(KEYS)
local name, limit = ARGV[1], tonumber(ARGV[2])
local count = redis.call('SCARD', kinds) + 1
if count > limit and redis.call('SISMEMBER', kinds, name) == 0 then return { count, '0', '0' } end
redis.call('SADD', kinds, name)
-- Another number each time: `unregister` notices that the kind was registered again.
redis.call('HSET', registered, name, redis.call('HINCRBY', removed, 'registrations', 1))
local set = redis.call('HMGET', removed, 'generation', 'fence')
return { 0, set[1] or '0', set[2] or '0' }
