-- Creates the kind if there is none. Returns false if it has to be registered before. The second argument of the
-- script is '', or what `begin` was called with and what `register` returned: text, generation, fence.
local function made()
  local set = call('HMGET', META, 'generation', 'making')
  if set[1] then return true end
  local text, generation, fence = string.match(ARGV[2], '^(%S+) (%d+) (%d+)$')
  if not text or text ~= set[2] then return false end
  call('HSET', META, 'generation', generation)
  if fence ~= '0' then call('HSET', META, 'fence', fence) end
  call('HDEL', META, 'making')
  return true
end
