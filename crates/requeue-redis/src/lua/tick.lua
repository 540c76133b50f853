-- A step of a schedule: if its next time is what is expected, puts its job and moves it on.
--
-- ARGV    now or '', id, expected time, next time, '1' if a job is put
-- Answer  S skipped; a absent; M and its next time: it has moved; otherwise as put.lua answers
-- State   as of a put
local SCHEDULES = KEYS[9]
local id, expected, later = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local schedule = call('HGET', SCHEDULES, id)
if not schedule then return { 'a' } end
-- Next time, where the content begins, and what is not for this script.
local at, content = cut('>I6H', schedule)
if at ~= expected then return { 'M', at } end
local moved = pack('>I6', later) .. string.sub(schedule, 7)
if ARGV[5] == '' then
  call('HSET', SCHEDULES, id, moved)
  return { 'S' }
end
local due = math.max(expected, now)
if due - now > MAX_DELAY then return { 'D', due - now } end
generation = tonumber(call('HGET', META, 'generation')) or 0
local base, sooner = generation, head()
local waits, runs, died = call('ZSCORE', DUE, id), call('ZSCORE', LEASED, id), call('ZSCORE', DEAD, id)
local letter = merge(id, due, string.sub(schedule, content), '', waits, runs, died)
call('HSET', SCHEDULES, id, moved)
call('HSET', META, 'generation', generation)
local first = head()
if first < sooner then wake(first) end
return { letter, base }
