-- Adds jobs exported from another store, unless their ids exist here. The ids must be distinct. A done job
-- counts as absent, unless the exported one is done, too, or has the same generation and time of creation.
--
-- ARGV    now or ''; '' or, if the kind is registered in the deployment, see `made`; lowest allowed value of
--         the generation counter and of the fence counter; the priorities other than 0 of the jobs, as digits;
--         then for each job:
--         id; its newest generation; state (p pending, d dead, o done, '' do not add it); its time in its list;
--         record; past or ''
-- Reply   0 if the kind is not registered and nothing was done. Otherwise one letter per job: C created,
--         K exists already, N not added
-- State   absent -> pending, dead, done
local PER_JOB = 6
local LISTS = { d = DEAD, o = DONE }
if not made() then return 0 end
local set = call('HMGET', META, 'generation', 'fence', 'levels')
local levels = set[3]
local generation = math.max(tonumber(set[1]) or 0, tonumber(ARGV[3]))
local fence = math.max(tonumber(set[2]) or 0, tonumber(ARGV[4]))
local before = head(levels)
if ARGV[5] ~= '' then
  levels = add_levels(levels, ARGV[5])
  call('HSET', META, 'levels', levels)
end
local letters = {}
for i = 1, (#ARGV - 5) / PER_JOB do
  local at = PER_JOB * (i - 1) + 6
  local id, state = ARGV[at], ARGV[at + 2]
  -- Also for a job that is not added: its generation was in use.
  generation = math.max(generation, tonumber(ARGV[at + 1]))
  local exists = call('HEXISTS', JOB, id) == 1
  local done = exists and call('ZSCORE', LISTS.o, id)
  local is_same = done and string.sub(call('HGET', JOB, id), 1, 13) == string.sub(ARGV[at + 4], 1, 13)
  if exists and (not done or state == 'o' or is_same) then
    letters[i] = 'K'
  elseif state == '' then
    letters[i] = 'N'
  else
    letters[i] = 'C'
    if done then
      call('ZREM', LISTS.o, id)
      call('HDEL', PAST, id)
    end
    local record = ARGV[at + 4]
    call('HSET', JOB, id, record)
    if ARGV[at + 5] ~= '' then call('HSET', PAST, id, ARGV[at + 5]) end
    local list, time = LISTS[state], tonumber(ARGV[at + 3])
    call('ZADD', list or DUE, text(list and time or score_of(levels, time, record)), id)
  end
end
call('HSET', META, 'generation', generation, 'fence', fence)
local at = head(levels)
if at < before then wake(at) end
return table.concat(letters)
