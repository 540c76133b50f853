-- Claims due jobs and jobs with expired leases, ordered by due time or end of the lease.
--
-- This text is built into two scripts. `claim` has no code to end leases. If it finds an expired lease it
-- changes nothing and returns an empty array; the client then calls `claim_expired`.
--
-- ARGV    now or ''; max. number of jobs; lease in milliseconds or '' (the kind's); nonce (8 bytes);
--         worker; max. number of expired leases to end whose jobs cannot be claimed; max. bytes of bodies
-- Reply   now; end of the leases; fence of the first job (the others count up from it; above the limit:
--         no fence is left, and there are no jobs); milliseconds
--         until more may be claimable (-1 never, -2 not determined, -3 now, but the next job would exceed
--         the max. bytes); number of expired leases ended whose jobs were not claimed; ids and due times,
--         alternating; records (of a record that is too long: its length); the first bytes of the pasts,
--         up to the number of attempts (empty if no job has one). Only `claim_expired`: id, worker, attempt
--         and 1 if the job died (else 0) of each expired lease that it ended
-- State   ready -> leased; leased and expired -> leased, dead, waiting or absent
local set = call('HMGET', META, 'paused', 'concurrency', 'lease', 'fence')
local max, ends = tonumber(ARGV[2]), tonumber(ARGV[6])
local paused = set[1]
local free = paused and 0 or room(set[2])
local first = math.max((tonumber(set[4]) or 0) + 1, math.min(micros, math.floor(MAX_COUNTER / 2)))
local wanted = math.min(max, free, MAX_COUNTER - first + 1)
local ends_at = now + (tonumber(ARGV[3]) or math.ceil(tonumber(set[3]) or 30000))
if wanted <= 0 then
  return { now, ends_at, free > 0 and first or 0, soonest(paused, free), 0, {}, {}, {} }
end

-- Inserts a job that has become due into `line`, in due order, not before position `at`.
local function join(line, at, id, due)
  while line[at] and tonumber(line[at + 1]) <= due do at = at + 2 end
  table.insert(line, at, text(due))
  table.insert(line, at, id)
end

-- Returns the length of the body in a record or successor; 0 if that is missing or too long.
local MAX_BODY = 1048576
local function body_bytes(record)
  if not record then return 0 end
  local bytes = #record - 20
  if string.byte(record, 20) == 3 then bytes = bytes - 1 - (string.byte(record, 21) or 0) end
  return bytes > MAX_BODY and 0 or math.max(bytes, 0)
end

local upto = text(now)
local expired = call('ZRANGE', LEASED, '-inf', upto, 'BYSCORE', 'LIMIT', '0', text(wanted + ends), 'WITHSCORES')
if expired[1] and not expiry then return {} end
local found = call('ZRANGE', DUE, '-inf', upto, 'BYSCORE', 'LIMIT', '0', text(wanted), 'WITHSCORES')
local ended, full = 0, false
if expired[1] then
  local merged, d, l, left = {}, 1, 1, tonumber(ARGV[7])
  while #merged < 2 * wanted and ended < ends and (found[d] or expired[l]) do
    local is_lease = expired[l] and (not found[d] or tonumber(expired[l + 1]) < tonumber(found[d + 1]))
    -- A lease is not ended if its job, with the body of the successor, does not fit.
    local record
    if not is_lease then
      record = call('HGET', JOB, found[d])
    elseif string.byte(call('HGET', LEASE, expired[l]) or '', 34) ~= 1 then
      record = call('HGET', NEXT, expired[l]) or call('HGET', JOB, expired[l])
    end
    local bytes = body_bytes(record)
    full = bytes > left
    if full then break end
    if is_lease then
      local due, anew = expiry(expired[l], tonumber(expired[l + 1]))
      if due then
        merged[#merged + 1], merged[#merged + 2] = expired[l], text(due)
        left = left - bytes
      else
        ended = ended + 1
        if anew and anew <= now then join(found, d, expired[l], anew) end
      end
      l = l + 2
    else
      merged[#merged + 1], merged[#merged + 2] = found[d], found[d + 1]
      left = left - bytes
      d = d + 2
    end
  end
  found = merged
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
  if expired[1] then call('ZADD', DUE, found[i + 1], found[i]) end
  found[i], found[i + 1] = nil, nil
end

-- Redis keeps small sets and hashes as lists and searches them from the start, once per entry. An entry of
-- more than 64 bytes makes them tables, and they stay tables when it is removed. No id is empty or has
-- bytes that are not UTF-8.
local MANY = 16
local long = #records >= MANY and string.rep('\255', 65)

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
  call('ZREM', DUE, unpack(ids))
  call('ZADD', LEASED, unpack(places))
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
