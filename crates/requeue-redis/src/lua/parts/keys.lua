-- KEYS    the keys of a kind, as docs/redis-keys.md describes them
local DUE, LEASED, DEAD, DONE, JOB, LEASE, NEXT, PAST, META, SCHEDULES = unpack(KEYS)
local call, pack, cut = redis.call, struct.pack, struct.unpack
-- The length of the shortest lease, and of the shortest record and successor. A shorter one is damaged.
local MIN_LEASE, MIN_RECORD = 35, 20
