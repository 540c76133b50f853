-- Stores a schedule, and replaces the one with the same id.
--
-- ARGV    now or ''; '' or, if the kind is registered in the deployment, see `made`; id; schedule; max. number
--         of schedules; condition: '', 'absent' or the next time that the present schedule must have; max. bytes
--         of all schedules
-- Reply   1 stored; 2 the condition does not hold and nothing was done; 0 the kind is not registered and
--         nothing was done; -1 too many schedules; -1 - N: they would have N bytes, which is too much
-- State   unchanged
if ARGV[6] ~= '' then
  local present = call('HGET', SCHEDULES, ARGV[3])
  if ARGV[6] == 'absent' then
    if present then return 2 end
  elseif not present or cut('>I6', present) ~= tonumber(ARGV[6]) then
    return 2
  end
end
-- Small ones are not counted: adding up ten thousand takes milliseconds.
if #ARGV[4] > 4096 then
  local size = #ARGV[4]
  local ids = call('HKEYS', SCHEDULES)
  for i = 1, #ids do
    if ids[i] ~= ARGV[3] then size = size + call('HSTRLEN', SCHEDULES, ids[i]) end
  end
  if size > tonumber(ARGV[7]) then return -1 - size end
end
if call('HEXISTS', SCHEDULES, ARGV[3]) == 0 and call('HLEN', SCHEDULES) >= tonumber(ARGV[5]) then return -1 end
if not made() then return 0 end
call('HSET', SCHEDULES, ARGV[3], ARGV[4])
return 1
