-- Removes kinds from the kinds of the deployment, unless they were registered again.
--
-- KEYS    the set of kinds of the deployment; the numbers of their registrations
-- ARGV    for each kind: its name; the number of its registration, or ''
-- Reply   how many were removed
-- State   unchanged
local kinds, registered = unpack(KEYS)
local gone = 0
for i = 1, #ARGV, 2 do
  if (redis.call('HGET', registered, ARGV[i]) or '') == ARGV[i + 1] then
    gone = gone + redis.call('SREM', kinds, ARGV[i])
    redis.call('HDEL', registered, ARGV[i])
  end
end
return gone
