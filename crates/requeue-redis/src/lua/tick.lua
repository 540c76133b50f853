-- Advances a schedule: if its next time is the expected one, puts its job and sets the new next time.
--
-- ARGV    now or ''; id; expected time; new next time; then, unless the run is skipped: id and content of the
--         job to put; its priority, or '' if that is 0
-- Reply   S skipped; a schedule absent; M and the next time: another node advanced it; D and the delay in
--         milliseconds: due too late; N no generation is left; otherwise the letter that put.lua returns, and the generation before
-- State   as put.lua
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
local base, levels = tonumber(set[1]) or 0, set[2]
if base >= MAX_COUNTER then return { 'N' } end
local sooner = head(levels)
if ARGV[7] ~= '' then
  levels = add_levels(levels, ARGV[7])
  call('HSET', META, 'levels', levels)
end
local letter = load_merge(now)(levels, base + 1, job, due, ARGV[6], '', find(job))
call('HSET', SCHEDULES, id, moved)
call('HSET', META, 'generation', text(base + 1))
local first = head(levels)
if first < sooner then wake(first) end
return { letter, base }
