-- Puts jobs. No id is there twice.
--
-- ARGV    now or '', '1' if the kind is among the kinds of the deployment, then for each job:
--         id
--         due time; 0 and below: so many milliseconds from now
--         how: '' or MODE[LONGEST][CONDITION[GENERATION]]; MODE is r, e, k or d for replace, earliest,
--         keep, debounce; CONDITION is a or g for if-absent, if-generation
--         content: flags, content type, body
-- Answer  the generation before, a letter for each job, then a number for each letter that has one:
--         C created, U updated, O coalesced, R revived: each has the next generation
--         K kept, E exists, G has generation (0: is absent), D is due in too long: each has a number
--         0: the kind is not among those of the deployment, and nothing was done
-- State   absent -> pending; pending, ready -> pending; leased -> has a successor; dead -> pending
local PER_JOB = 4
local ids = {}
for i = 3, #ARGV, PER_JOB do ids[#ids + 1] = ARGV[i] end
local before = call('HGET', META, 'generation')
generation = tonumber(before) or 0
local base, sooner = generation, head()

local waits = call('ZMSCORE', DUE, unpack(ids))
local runs = call('EXISTS', LEASED) == 1 and call('ZMSCORE', LEASED, unpack(ids)) or {}
local died = call('EXISTS', DEAD) == 1 and call('ZMSCORE', DEAD, unpack(ids)) or {}

local letters, numbers, records, places = {}, {}, {}, {}
local times = pack('>I6I6', now, now)
-- Many are due at the same time: it is written once.
local last, written
for i = 1, #ids do
  local at = PER_JOB * i
  local due, how, content = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2]
  if due <= 0 then due = now - due elseif due < now then due = now end
  local number
  if due - now > MAX_DELAY then
    letters[i], number = 'D', due - now
  elseif how == '' and not (waits[i] or runs[i] or died[i]) then
    generation = generation + 1
    if due ~= last then last, written = due, text(due) end
    local n = #records
    records[n + 1], records[n + 2] = ids[i], pack('>I7', generation) .. times .. content
    places[n + 1], places[n + 2] = written, ids[i]
    letters[i] = 'C'
  elseif not before and ARGV[2] == '' and not string.find(how, 'g', 1, true) then
    return 0
  else
    letters[i], number = merge(ids[i], due, content, how, waits[i], runs[i], died[i])
  end
  if number then numbers[#numbers + 1] = number end
end
if records[1] then
  if not before and ARGV[2] == '' then return 0 end
  call('HSET', JOB, unpack(records))
  call('ZADD', DUE, unpack(places))
end
if generation > base then
  call('HSET', META, 'generation', text(generation))
  local at = head()
  if at < sooner then wake(at) end
end
return { base, table.concat(letters), unpack(numbers) }
