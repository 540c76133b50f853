-- Stores the settings of a kind.
--
-- ARGV    now or ''; '' or, if the kind is registered in the deployment, see `made`; then fields and values,
--         alternating; an empty value removes the field, so that the default applies
-- Reply   1 stored; 0 the kind is not registered and nothing was done
-- State   unchanged
if not made() then return 0 end
local function rate()
  local set = call('HMGET', META, 'rate_jobs', 'rate_per', 'rate_burst')
  return (set[1] or '') .. ' ' .. (set[2] or '') .. ' ' .. (set[3] or '')
end
local before = rate()
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    call('HDEL', META, ARGV[i])
  else
    call('HSET', META, ARGV[i], ARGV[i + 1])
  end
end
-- A new rate begins with a full bucket.
if rate() ~= before then call('HDEL', META, 'rate_parts', 'rate_at') end
wake(now)
return 1
