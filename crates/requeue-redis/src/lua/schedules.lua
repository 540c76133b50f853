-- Returns the schedules with the given ids, in that order, until they have too many bytes.
--
-- ARGV    now or ''; max. bytes (but at least one schedule); then ids
-- Reply   for each id that was examined: the schedule; '' if there is none; of one that is too long: its length
-- State   unchanged
local MAX_SCHEDULE = 1067223
local values, size, max = {}, 0, tonumber(ARGV[2])
for i = 3, #ARGV do
  local value = call('HGET', SCHEDULES, ARGV[i]) or ''
  size = size + #value
  if values[1] and size > max then break end
  values[#values + 1] = #value > MAX_SCHEDULE and #value or value
end
return values
