-- KEYS    the keys of a kind, as docs/redis-keys.md describes them; the ninth is `schedules`
local DUE, LEASED, DEAD, JOB, LEASE, NEXT, PAST, META = unpack(KEYS)
local call, pack, cut = redis.call, struct.pack, struct.unpack
