-- Raises the numbers after which new kinds begin. Must be called before kinds with these numbers are removed.
--
-- KEYS    what is left of removed kinds
-- ARGV    generation; fence
-- Reply   1
-- State   unchanged
for i, field in ipairs({ 'generation', 'fence' }) do
  if tonumber(redis.call('HGET', KEYS[1], field) or 0) < tonumber(ARGV[i]) then redis.call('HSET', KEYS[1], field, ARGV[i]) end
end
return 1
