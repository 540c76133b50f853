-- Reschedules jobs: puts what they contain again, with another due time, priority or body. The ids must be distinct.
--
-- ARGV    now or ''; the priorities other than 0 that jobs get, as digits; then for each job:
--         id; due time as in put.lua, or '' to keep it; priority, or '' to keep it; content without a head and with
--         the priority 0, or '' to keep it; of a head that the job has, all but the
--         envelope stays; the expected generation, or ''
-- Reply   the generation before the call; one letter per job; a number for each letter of the second group.
--         U updated, O coalesced, R revived: the job has the next generation
--         G generation differs: the job's generation. D due too late: the delay in milliseconds. N no generation is
--         left: the limit
--         a absent; o done; b its record or its lease is damaged
-- State   pending -> pending; leased -> leased with a successor; dead -> pending, or dead without a due time
local set = call('HMGET', META, 'generation', 'levels')
local base, levels = tonumber(set[1]) or 0, set[2]
local generation, sooner = base, head(levels)
if ARGV[2] ~= '' then levels = add_levels(levels, ARGV[2]) end
local merge = load_merge(now)

-- Returns the head in a record or successor, with its lengths, without the envelope, which describes the old body: '' if
-- nothing else is in it, nil if it is damaged. Fields are a tag, a length and bytes; see docs/content-format.md.
local ENVELOPE = 7
local function without_envelope(record)
  if #record < 28 then return nil end
  local counted, length = cut('>I4I4', record, 21)
  local at, last = 29, 28 + length
  if #record < last then return nil end
  local function varint()
    local number, unit, byte = 0, 1, nil
    repeat
      byte = string.byte(record, at) or 0
      number, unit, at = number + byte % 128 * unit, unit * 128, at + 1
    until byte < 128 or unit > 2 ^ 32
    return number
  end
  while at <= last do
    local from, tag, size = at, varint(), varint()
    at = at + size
    if tag == ENVELOPE and at <= last + 1 then
      -- The length of its type does not count.
      counted, length = counted - size + 1, length - (at - from)
      if counted < 0 then return nil end
      if length == 0 then return '' end
      return pack('>I4I4', counted, length) .. string.sub(record, 29, from - 1) .. string.sub(record, at, last)
    end
  end
  return at == last + 1 and string.sub(record, 21, last) or nil
end

-- Returns the letter and the number.
local function reschedule(id, asked, priority, content, expected)
  local waits, runs, died, done = find(id)
  if done then return 'o' end
  if not (waits or runs or died) then return 'a' end
  local old = call('HGET', JOB, id)
  if not old or #old < MIN_RECORD then return 'b' end
  local newest, created = cut('>I7I6', old)
  -- Without another due time: the present one, and for a new successor now.
  local due = waits and waits % LEVEL or now
  if runs then
    local lease, next = call('HGET', LEASE, id), call('HGET', NEXT, id)
    if not lease or #lease < MIN_LEASE then return 'b' end
    if next and #next < MIN_RECORD then next = nil end
    if next then
      due, newest = cut('>I6I7', next)
      old = next
    elseif string.byte(lease, 34) == 1 then
      return 'a'
    end
  end
  if asked ~= '' then
    due = tonumber(asked)
    if due <= 0 then due = now - due elseif due < now then due = now end
    if due - now > MAX_DELAY then return 'D', due - now end
  end
  -- The first byte contains, from above: whether a head follows, nothing, the priority, the number of the content type.
  local flags = string.byte(old, 20)
  local number, head = flags % 4, flags - flags % 128
  if content == '' then
    content = string.sub(old, 21)
  else
    number = string.byte(content)
    content = string.sub(content, 2)
    if head > 0 then
      local kept = without_envelope(old)
      if not kept then return 'b' end
      if kept == '' then head = 0 end
      content = kept .. content
    end
  end
  if generation >= MAX_COUNTER then return 'N', MAX_COUNTER end
  if expected ~= '' and tonumber(expected) ~= newest then return 'G', newest end
  local level = tonumber(priority) or math.floor(flags / 4) % 16
  content = string.char(head + number + 4 * level) .. content
  if died and asked == '' then
    call('HSET', JOB, id, pack('>I7I6I6', generation + 1, created, now) .. content)
    return 'U'
  end
  return merge(levels, generation + 1, id, due, content, '', waits, runs, died)
end

local letters, numbers = {}, {}
local CHANGED = { U = true, O = true, R = true }
for i = 1, (#ARGV - 2) / 5 do
  local at = 5 * i - 2
  letters[i], numbers[#numbers + 1] = reschedule(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  if CHANGED[letters[i]] then generation = generation + 1 end
end
if generation > base then
  call('HSET', META, 'generation', text(generation))
  if levels ~= set[2] then call('HSET', META, 'levels', levels) end
  local first = head(levels)
  if first < sooner then wake(first) end
end
return { base, table.concat(letters), unpack(numbers) }
