-- Advances a schedule: if its next time is the expected one, puts its job and sets the new next time.
--
-- ARGV    now or ''; id; expected time; new next time; then, unless the run is skipped: id and content of the
--         job to put
-- Reply   S skipped; a schedule absent; M and the next time: another node advanced it; D and the delay in
--         milliseconds: due too late; N no generation is left; otherwise the letter that put.lua returns, and the generation before
-- State   as put.lua
local SCHEDULES = KEYS[9]
local id, expected, later = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local schedule = call('HGET', SCHEDULES, id)
if not schedule then return { 'a' } end
-- The schedule begins with its next time. This script needs no more.
local at = cut('>I6', schedule)
if at ~= expected then return { 'M', at } end
local moved = pack('>I6', later) .. string.sub(schedule, 7)
local job = ARGV[5]
if not job then
  call('HSET', SCHEDULES, id, moved)
  return { 'S' }
end
local due = math.max(expected, now)
if due - now > MAX_DELAY then return { 'D', due - now } end
local set = call('HMGET', META, 'generation', 'levels')
if set[2] then
  if not DONE then return { ok = 'MORE KEYS' } end
  use_levels(set[2])
else
  dues, leaseds = { DUE }, { LEASED }
end
generation = tonumber(set[1]) or 0
if generation >= MAX_COUNTER then return { 'N' } end
local base, sooner = generation, head()
local merge = load_merge()
local letter = merge(job, due, ARGV[6], '', find(job))
call('HSET', SCHEDULES, id, moved)
call('HSET', META, 'generation', generation)
local first = head()
if first < sooner then wake(first) end
return { letter, base }
