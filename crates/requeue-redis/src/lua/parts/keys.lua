-- The keys of a kind. docs/redis-keys.md draws what is in them.
local DUE, LEASED, DEAD, JOB, LEASE, NEXT, PAST, META = unpack(KEYS)
local call, pack, cut = redis.call, struct.pack, struct.unpack
