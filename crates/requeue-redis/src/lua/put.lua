-- Puts jobs. The ids must be distinct.
--
-- ARGV    now or ''; '1' if the kind is registered in the deployment, else ''; due time of all jobs, or '' if
--         they differ in due time, mode or condition; mode and condition of all jobs; then for each job:
--         id
--         if they differ: due time in milliseconds; 0 or negative: delay from now, negated
--         if they differ: mode and condition: '' or MODE[MAX_WAIT][CONDITION[GENERATION]]; MODE is r replace,
--         e earliest, k keep or d debounce; CONDITION is a if-absent or g if-generation
--         content: flags, content type, body
-- Reply   0 if the kind is not registered and nothing was done. Otherwise: the generation before the
--         call; one letter per job; a number for each letter of the second group.
--         C created, U updated, O coalesced, R revived: the job has the next generation
--         K kept, E exists, G generation differs (0: absent): the job's generation.
--         D due too late: the delay in milliseconds. N no generation is left: the limit
-- State   absent -> pending; pending -> pending; leased -> leased with a successor; dead -> pending
local differ = ARGV[3] == ''
local per_job = differ and 4 or 2
local ids, n = {}, 0
for i = 5, #ARGV, per_job do n = n + 1; ids[n] = ARGV[i] end
local before = call('HGET', META, 'generation')
generation = tonumber(before) or 0
local base, sooner = generation, head()

local waits = call('ZMSCORE', DUE, unpack(ids))
local runs, died, others = {}, {}, call('EXISTS', LEASED, DEAD)
if others > 0 then
  local leased = call('EXISTS', LEASED)
  if leased == 1 then runs = call('ZMSCORE', LEASED, unpack(ids)) end
  if others > leased then died = call('ZMSCORE', DEAD, unpack(ids)) end
end

local letters, numbers, records, places, m = {}, {}, {}, {}, 0
local earliest, merged = sooner, false
local times = pack('>I6I6', now, now)
local args, char = ARGV, string.char
-- Many jobs have the same due time, and the same upper bytes of the generation: parse and format them once.
local raw, due, written
local upper, upper_bytes
for i = 1, n do
  local at = per_job * i + 4
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
  elseif how == '' and not (waits[i] or runs[i] or died[i]) then
    generation = generation + 1
    local last = generation % 256
    if generation - last ~= upper then
      upper = generation - last
      upper_bytes = pack('>I6', upper / 256)
    end
    records[m + 1], records[m + 2] = ids[i], upper_bytes .. char(last) .. times .. args[at]
    places[m + 1], places[m + 2] = written, ids[i]
    m = m + 2
    if due < earliest then earliest = due end
    letters[i] = 'C'
  elseif not before and args[2] == '' and not string.find(how, 'g', 1, true) then
    return 0
  else
    merged = true
    letters[i], number = merge(ids[i], due, args[at], how, waits[i], runs[i], died[i])
  end
  if number then numbers[#numbers + 1] = number end
end
if m > 0 then
  if not before and args[2] == '' then return 0 end
  call('HSET', JOB, unpack(records))
  call('ZADD', DUE, unpack(places))
end
if generation > base then
  call('HSET', META, 'generation', text(generation))
  if merged then earliest = head() end
  if earliest < sooner then wake(earliest) end
end
return { base, table.concat(letters), unpack(numbers) }
