-- Puts jobs. The ids must be distinct.
--
-- ARGV    now or ''; '1' if the kind is registered in the deployment, else ''; then for each job:
--         id
--         due time in milliseconds; 0 or negative: delay from now, negated
--         mode and condition: '' or MODE[MAX_WAIT][CONDITION[GENERATION]]; MODE is r replace, e earliest,
--         k keep or d debounce; CONDITION is a if-absent or g if-generation
--         content: flags, content type, body
-- Reply   0 if the kind is not registered and nothing was done. Otherwise: the generation before the
--         call; one letter per job; a number for each letter of the second group.
--         C created, U updated, O coalesced, R revived: the job has the next generation
--         K kept, E exists, G generation differs (0: absent): the job's generation.
--         D due too late: the delay in milliseconds. N no generation is left: the limit
-- State   absent -> pending; pending -> pending; leased -> leased with a successor; dead -> pending
local PER_JOB = 4
local ids, n = {}, 0
for i = 3, #ARGV, PER_JOB do n = n + 1; ids[n] = ARGV[i] end
local before = call('HGET', META, 'generation')
generation = tonumber(before) or 0
local base, sooner = generation, head()

local waits = call('ZMSCORE', DUE, unpack(ids))
local runs = call('EXISTS', LEASED) == 1 and call('ZMSCORE', LEASED, unpack(ids)) or {}
local died = call('EXISTS', DEAD) == 1 and call('ZMSCORE', DEAD, unpack(ids)) or {}

local letters, numbers, records, places, m = {}, {}, {}, {}, 0
local times = pack('>I6I6', now, now)
local args, char = ARGV, string.char
-- Many jobs have the same due time, and the same upper bytes of the generation: parse and format them once.
local raw, due, written
local upper, upper_bytes
for i = 1, n do
  local at = PER_JOB * i
  if args[at] ~= raw then
    raw = args[at]
    due = tonumber(raw)
    if due <= 0 then due = now - due elseif due < now then due = now end
    written = text(due)
  end
  local how = args[at + 1]
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
    records[m + 1], records[m + 2] = ids[i], upper_bytes .. char(last) .. times .. args[at + 2]
    places[m + 1], places[m + 2] = written, ids[i]
    m = m + 2
    letters[i] = 'C'
  elseif not before and args[2] == '' and not string.find(how, 'g', 1, true) then
    return 0
  else
    letters[i], number = merge(ids[i], due, args[at + 2], how, waits[i], runs[i], died[i])
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
  local at = head()
  if at < sooner then wake(at) end
end
return { base, table.concat(letters), unpack(numbers) }
