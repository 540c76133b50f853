-- Puts jobs. The ids must be distinct.
--
-- ARGV    now or ''; '' or, if the kind is registered in the deployment, see `made`; due time of all jobs, or ''
--         if they differ in due time, mode or condition; mode and condition of all jobs; '1' if the priority of a
--         job is not 0, else ''; then for each job:
--         id
--         if they differ: due time in milliseconds; 0 or negative: delay from now, negated
--         if they differ: mode and condition: '' or MODE[MAX_WAIT][CONDITION[GENERATION]]; MODE is r replace,
--         e earliest, k keep or d debounce; CONDITION is a if-absent, n if-new or g if-generation
--         content: flags, content type, body
-- Reply   0 if the kind is not registered and nothing was done. Otherwise: the generation before the
--         call; one letter per job; a number for each letter of the second group.
--         C created, U updated, O coalesced, R revived: the job has the next generation
--         K kept, E exists, G generation differs (0: absent): the job's generation.
--         D due too late: the delay in milliseconds. N no generation is left: the limit
-- State   absent, done -> pending; pending -> pending; leased -> leased with a successor; dead -> pending
local differ = ARGV[3] == ''
local per_job = differ and 4 or 2
local ids, n = {}, 0
for i = 6, #ARGV, per_job do n = n + 1; ids[n] = ARGV[i] end
local set = call('HMGET', META, 'generation', 'levels', 'making')
local before = set[1]
local text_of, floor, fence_floor
if not before then
  -- As `made` does, but the kind is created only if a job is put.
  text_of, floor, fence_floor = string.match(ARGV[2], '^(%S+) (%d+) (%d+)$')
  if text_of ~= set[3] then text_of, floor = nil, nil end
end
if set[2] then
  if not DONE then return { ok = 'MORE KEYS' } end
  use_levels(set[2])
end
generation = tonumber(before or floor) or 0
local base, sooner = generation, head()

local none = {}
local waits, runs, died, done = none, none, none, none
if levels then
  waits, runs, died, done = {}, {}, {}, {}
  -- Adds the times of the jobs that are in `list` to `times`.
  local function look(list, times)
    if call('EXISTS', list) == 0 then return end
    local found = call('ZMSCORE', list, unpack(ids))
    for i = 1, n do times[i] = times[i] or found[i] end
  end
  for i = 1, #dues do
    look(dues[i], waits)
    look(leaseds[i], runs)
  end
  look(DEAD, died)
  look(DONE, done)
else
  waits = call('ZMSCORE', DUE, unpack(ids))
  local others = call('EXISTS', LEASED, DEAD)
  if others > 0 then
    local leased = call('EXISTS', LEASED)
    if leased == 1 then runs = call('ZMSCORE', LEASED, unpack(ids)) end
    if others > leased then died = call('ZMSCORE', DEAD, unpack(ids)) end
  end
end

local letters, numbers, records, places, m = {}, {}, {}, {}, 0
local merge, add_level, need_level
-- In layout 2: the places by list.
local by_list = (levels or ARGV[5] ~= '') and {}
if by_list then merge, add_level, need_level = load_merge() end
local unregistered = not before and not text_of
local earliest, merged = sooner, false
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
    records[m + 1], records[m + 2] = ids[i], upper_bytes .. char(last) .. times .. args[at]
    if by_list then
      if not levels then add_level() end
      need_level(args[at])
      local list = due_of(records[m + 2])
      local these = by_list[list] or {}
      by_list[list] = these
      these[#these + 1] = written
      these[#these + 1] = ids[i]
    else
      places[m + 1], places[m + 2] = written, ids[i]
    end
    m = m + 2
    if due < earliest then earliest = due end
    letters[i] = 'C'
  elseif unregistered and not string.find(how, 'g', 1, true) then
    return 0
  else
    merged = true
    if not merge then merge, add_level, need_level = load_merge() end
    letters[i], number = merge(ids[i], due, args[at], how, waits[i], runs[i], died[i], done[i])
  end
  if number then numbers[#numbers + 1] = number end
end
if m > 0 then
  call('HSET', JOB, unpack(records))
  if by_list then
    for list, these in pairs(by_list) do call('ZADD', list, unpack(these)) end
  else
    call('ZADD', DUE, unpack(places))
  end
end
if generation > base then
  call('HSET', META, 'generation', text(generation))
  if text_of then
    call('HDEL', META, 'making')
    if fence_floor ~= '0' then call('HSET', META, 'fence', fence_floor) end
  end
  if merged then earliest = head() end
  if earliest < sooner then wake(earliest) end
end
return { base, table.concat(letters), unpack(numbers) }
