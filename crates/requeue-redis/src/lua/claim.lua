-- Claims due jobs and jobs with expired leases: those of the highest level first, and of a level those that have
-- been ready for the longest time. The level of a job is its priority, and one more for each span of the kind's
-- `ageing` since it was due or its lease expired.
--
-- This text is built into two scripts. `claim` has no code to end leases, and none for layout 2. If it needs one, it
-- changes nothing and returns an empty array; the client then calls `claim_any`.
--
-- ARGV    now or ''; max. number of jobs; lease in milliseconds or '' (the kind's); nonce (8 bytes);
--         worker; max. number of expired leases to end whose jobs cannot be claimed; max. bytes of bodies
-- Reply   now; end of the leases; fence of the first job (the others count up from it; above the limit:
--         no fence is left, and there are no jobs); milliseconds
--         until more may be claimable (-1 never, -2 not determined, -3 now, but the next job would exceed
--         the max. bytes); number of expired leases ended whose jobs were not claimed; ids and due times,
--         alternating; records (of a record that is too long: its length); the first bytes of the pasts,
--         up to the number of attempts (empty if no job has one). Only `claim_any`: id, worker, attempt
--         and 1 if the job died (else 0) of each expired lease that it ended
-- State   ready -> leased; leased and expired -> leased, dead, waiting or absent
local set = call('HMGET', META, 'paused', 'concurrency', 'lease', 'fence', 'levels')
if set[5] then
  if not expiry then return {} end
  if not DONE then return { ok = 'MORE KEYS' } end
  use_levels(set[5])
  read_rate()
end
local max, ends = tonumber(ARGV[2]), tonumber(ARGV[6])
local paused = set[1]
local free = paused and 0 or room(set[2])
local first = math.max((tonumber(set[4]) or 0) + 1, math.min(micros, math.floor(MAX_COUNTER / 2)))
local wanted = math.min(max, free, rate and tokens() or math.huge, MAX_COUNTER - first + 1)
local ends_at = now + (tonumber(ARGV[3]) or math.ceil(tonumber(set[3]) or 30000))
if wanted <= 0 then
  return { now, ends_at, free > 0 and first or 0, soonest(paused, free), 0, {}, {}, {} }
end

-- Returns the length of the body in a record or successor; 0 if that is missing or too long.
local MAX_BODY = 1048576
local function body_bytes(record)
  if not record then return 0 end
  local bytes = #record - 20
  if (string.byte(record, 20) or 0) % 4 == 3 then bytes = bytes - 1 - (string.byte(record, 21) or 0) end
  return bytes > MAX_BODY and 0 or math.max(bytes, 0)
end

local upto = text(now)
-- The expired leases and the ready jobs of each list: ids and times, alternating.
local expired, ready, any_expired = nil, nil, false
-- The jobs to lease: ids and due times, alternating; and the number of the list of each, unless all are in `due`.
local found, list_of, ended, full = nil, nil, 0, false
if levels then
  expired, ready = {}, {}
  for i = 1, #dues do
    expired[i] = call('ZRANGE', leaseds[i], '-inf', upto, 'BYSCORE', 'LIMIT', '0', text(wanted + ends), 'WITHSCORES')
    ready[i] = call('ZRANGE', dues[i], '-inf', upto, 'BYSCORE', 'LIMIT', '0', text(wanted), 'WITHSCORES')
    any_expired = any_expired or expired[i][1]
  end
else
  local lapsed = call('ZRANGE', LEASED, '-inf', upto, 'BYSCORE', 'LIMIT', '0', text(wanted + ends), 'WITHSCORES')
  any_expired = lapsed[1]
  if any_expired and not expiry then return {} end
  found = call('ZRANGE', DUE, '-inf', upto, 'BYSCORE', 'LIMIT', '0', text(wanted), 'WITHSCORES')
  if any_expired then dues, leaseds, expired, ready = { DUE }, { LEASED }, { lapsed }, { found } end
end

if any_expired or levels then
  found, list_of = {}, {}
  local ageing = math.floor(tonumber(levels and call('HGET', META, 'ageing')) or 600000)
  local d, l, left = {}, {}, tonumber(ARGV[7])
  for i = 1, #dues do d[i], l[i] = 1, 1 end
  -- Inserts a job that has become due into `line`, in due order, not before position `at`.
  local function join(line, at, id, due)
    while line[at] and tonumber(line[at + 1]) <= due do at = at + 2 end
    table.insert(line, at, text(due))
    table.insert(line, at, id)
  end
  local best, best_at, list, is_lease
  local function compare(i, at, leased)
    at = tonumber(at)
    if not at then return end
    local level = levels and tonumber(string.sub(levels, i, i)) or 0
    if ageing > 0 then level = level + math.floor((now - at) / ageing) end
    if not best or level > best or level == best and at < best_at then
      best, best_at, list, is_lease = level, at, i, leased
    end
  end
  while #found < 2 * wanted and ended < ends do
    -- Only the first jobs of the lists are compared: no other has a higher level.
    best = nil
    for i = 1, #dues do
      compare(i, ready[i][d[i] + 1], false)
      compare(i, expired[i][l[i] + 1], true)
    end
    if not best then break end
    local id = is_lease and expired[list][l[list]] or ready[list][d[list]]
    -- A lease is not ended if its job, with the body of the successor, does not fit.
    local record
    if not is_lease then
      record = call('HGET', JOB, id)
    elseif string.byte(call('HGET', LEASE, id) or '', 34) ~= 1 then
      record = call('HGET', NEXT, id) or call('HGET', JOB, id)
    end
    local bytes = body_bytes(record)
    full = bytes > left
    if full then break end
    local due = best_at
    if is_lease then
      l[list] = l[list] + 2
      local later, into
      due, later, into = expiry(id, best_at)
      if not due then
        ended = ended + 1
        for i = 1, #dues do
          if later and later <= now and dues[i] == into then join(ready[i], d[i], id, later) end
        end
      end
    else
      d[list] = d[list] + 2
    end
    if due then
      found[#found + 1], found[#found + 2] = id, text(due)
      list_of[#found / 2] = list
      left = left - bytes
    end
  end
end

-- Reads the records, and drops the jobs that would exceed the bytes. A few at a time: all of them may be
-- large.
local GROUP = 16
local records, left, cut_off = {}, tonumber(ARGV[7]), false
for n = 1, #found, 2 * GROUP do
  local group = {}
  for i = n, math.min(n + 2 * GROUP, #found) - 1, 2 do group[#group + 1] = found[i] end
  for _, record in ipairs(call('HMGET', JOB, unpack(group))) do
    local bytes = body_bytes(record)
    cut_off = bytes > left
    if cut_off then break end
    left = left - bytes
    records[#records + 1] = record and bytes == 0 and #record > MAX_BODY and #record or record
  end
  if cut_off then break end
end
full = full or cut_off
for i = #found - 1, 2 * #records + 1, -2 do
  -- If its lease has expired, it is in no list now.
  if any_expired then call('ZADD', dues[list_of[(i + 1) / 2]], found[i + 1], found[i]) end
  found[i], found[i + 1] = nil, nil
end

-- Redis keeps small sets and hashes as lists and searches them from the start, once per entry. An entry of
-- more than 64 bytes makes them tables, and they stay tables when it is removed. No id is empty or has
-- bytes that are not UTF-8.
local MANY = 16
local long = #records >= MANY and not levels and string.rep('\255', 65)

local ids, leases, places, n = {}, {}, {}, 0
local from, upto = pack('>I6I6B', now, now, 0) .. ARGV[5], text(ends_at)
if long then leases, places = { '', long }, { upto, long } end
-- Many jobs have the same due time, and the same upper bytes of the fence: format them once.
local char, at = string.char, #places
local upper, upper_bytes, due, rest
for i = 1, #found, 2 do
  local id, fence = found[i], first + n
  local last = fence % 256
  if fence - last ~= upper then
    upper = fence - last
    upper_bytes = pack('>I6', upper / 256)
  end
  if found[i + 1] ~= due then
    due = found[i + 1]
    rest = ARGV[4] .. pack('>I6', due) .. from
  end
  n = n + 1
  ids[n] = id
  leases[at + 1], leases[at + 2] = id, upper_bytes .. char(last) .. rest
  places[at + 1], places[at + 2] = upto, id
  at = at + 2
end
local pasts = {}
if n > 0 then
  if levels then
    for i = 1, #dues do
      local from, into = {}, {}
      for k = 1, n do
        if not list_of or list_of[k] == i then
          from[#from + 1] = ids[k]
          into[#into + 1] = upto
          into[#into + 1] = ids[k]
        end
      end
      if from[1] then
        call('ZREM', dues[i], unpack(from))
        call('ZADD', leaseds[i], unpack(into))
      end
    end
    if rate then take_tokens(n) end
  else
    call('ZREM', DUE, unpack(ids))
    call('ZADD', LEASED, unpack(places))
  end
  call('HSET', LEASE, unpack(leases))
  if long then
    call('ZREM', LEASED, long)
    call('HDEL', LEASE, '')
  end
  call('HSET', META, 'fence', text(first + n - 1))
  if call('EXISTS', PAST) == 1 then
    pasts = call('HMGET', PAST, unpack(ids))
    for i = 1, n do pasts[i] = pasts[i] and string.sub(pasts[i], 1, 4) end
  end
end
local more = full and -3 or -2
if not full and n < max then more = soonest(paused, room(set[2])) end
return { now, ends_at, first, more, ended, found, records, pasts, reports }
