-- Puts jobs. The ids must be distinct.
--
-- ARGV    now or ''; '' or, if the kind is registered in the deployment, see `made`; due time of all jobs, or ''
--         if they differ in due time, mode or condition; mode and condition of all jobs; the priorities other
--         than 0 of the jobs, as digits; then for each job:
--         id
--         if they differ: due time in milliseconds; 0 or negative: delay from now, negated
--         if they differ: mode and condition: '' or MODE[MAX_WAIT][CONDITION[GENERATION]]; MODE is r replace,
--         e earliest, k keep or d debounce; CONDITION is a if-absent, n if-new or g if-generation
--         content
-- Reply   0 if the kind is not registered and nothing was done. Otherwise: the generation before the
--         call; one letter per job; a number for each letter of the second group.
--         C created, U updated, O coalesced, R revived: the job has the next generation
--         K kept, E exists, G generation differs (0: absent): the job's generation.
--         D due too late: the delay in milliseconds. N no generation is left: the limit
-- State   absent, done -> pending; pending -> pending; leased -> leased with a successor; dead -> pending
local differ, ranked = ARGV[3] == '', ARGV[5] ~= ''
local per_job = differ and 4 or 2
local ids, n = {}, 0
for i = 6, #ARGV, per_job do n = n + 1; ids[n] = ARGV[i] end
local set = call('HMGET', META, 'generation', 'levels', 'making')
local before, levels = set[1], set[2]
local sooner = head(levels)
if ranked then levels = add_levels(levels, ARGV[5]) end
local text_of, floor, fence_floor
if not before then
  -- As `made` does, but the kind is created only if a job is put.
  text_of, floor, fence_floor = string.match(ARGV[2], '^(%S+) (%d+) (%d+)$')
  if text_of ~= set[3] then text_of, floor = nil, nil end
end
local unregistered = not before and not text_of
local base = tonumber(before or floor) or 0
local generation = base

local none = {}
local waits, runs, died, done = call('ZMSCORE', DUE, unpack(ids)), none, none, none
local others = call('EXISTS', LEASED, DEAD, DONE)
if others > 0 then
  local leased = call('EXISTS', LEASED)
  if leased == 1 then runs = call('ZMSCORE', LEASED, unpack(ids)) end
  if others > leased then
    died, done = call('ZMSCORE', DEAD, unpack(ids)), call('ZMSCORE', DONE, unpack(ids))
  end
end

local letters, numbers, records, places, m = {}, {}, {}, {}, 0
local merge
local earliest = sooner
local times = pack('>I6I6', now, now)
local args, char = ARGV, string.char
-- Many jobs have the same due time, and the same upper bytes of the generation: parse and format them once.
local raw, due, written
local upper, upper_bytes
for i = 1, n do
  local at = per_job * i + 5
  local asked, how = args[3], args[4]
  if differ then asked, how = args[at - 2], args[at - 1] end
  if asked ~= raw then
    raw = asked
    due = tonumber(raw)
    if due <= 0 then due = now - due elseif due < now then due = now end
    written = text(due)
  end
  local number
  if due - now > MAX_DELAY then
    letters[i], number = 'D', due - now
  elseif generation >= MAX_COUNTER then
    letters[i], number = 'N', MAX_COUNTER
  elseif how == '' and not (waits[i] or runs[i] or died[i] or done[i]) then
    if unregistered then return 0 end
    generation = generation + 1
    local last = generation % 256
    if generation - last ~= upper then
      upper = generation - last
      upper_bytes = pack('>I6', upper / 256)
    end
    local record = upper_bytes .. char(last) .. times .. args[at]
    records[m + 1], records[m + 2] = ids[i], record
    places[m + 1], places[m + 2] = ranked and text(score_of(levels, due, record)) or written, ids[i]
    m = m + 2
    if due < earliest then earliest = due end
    letters[i] = 'C'
  elseif unregistered and not string.find(how, 'g', 1, true) then
    return 0
  else
    merge = merge or load_merge(now)
    letters[i], number = merge(levels, generation + 1, ids[i], due, args[at], how, waits[i], runs[i], died[i], done[i])
    if not number then generation = generation + 1 end
  end
  if number then numbers[#numbers + 1] = number end
end
if m > 0 then
  call('HSET', JOB, unpack(records))
  call('ZADD', DUE, unpack(places))
end
if generation > base then
  if levels == set[2] then
    call('HSET', META, 'generation', text(generation))
  else
    call('HSET', META, 'generation', text(generation), 'levels', levels)
  end
  if text_of then
    call('HDEL', META, 'making')
    if fence_floor ~= '0' then call('HSET', META, 'fence', fence_floor) end
  end
  if merge then earliest = head(levels) end
  if earliest < sooner then wake(earliest) end
end
return { base, table.concat(letters), unpack(numbers) }
