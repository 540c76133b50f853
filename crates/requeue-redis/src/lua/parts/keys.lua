-- KEYS    the keys of a kind, as docs/redis-keys.md describes them; the ninth is `schedules`. If the client knows
--         that the kind has or gets layout 2, also: due0 to due9, leased0 to leased9, done
local DUE, LEASED, DEAD, JOB, LEASE, NEXT, PAST, META = unpack(KEYS)
local call, pack, cut = redis.call, struct.pack, struct.unpack
-- The length of the shortest lease, and of the shortest record and successor. A shorter one is damaged.
local MIN_LEASE, MIN_RECORD = 35, 20
