-- Claims due jobs and jobs with expired leases: those of the highest level first, and of a level those that have
-- been ready for the longest time. The level of a job is its priority, and one more for each span of the kind's
-- `ageing` since it was due or its lease expired.
--
-- ARGV    now or ''; max. number of jobs; lease in milliseconds or '' (the kind's); nonce (8 bytes);
--         worker; max. number of expired leases to end whose jobs cannot be claimed; max. bytes of contents
-- Reply   now; end of the leases; fence of the first job (the others count up from it; above the limit:
--         no fence is left, and there are no jobs); milliseconds
--         until more may be claimable (-1 never, -2 not determined, -3 now, but the next job would exceed
--         the max. bytes); number of expired leases ended whose jobs were not claimed; ids and due times,
--         alternating; records (of a record that is too long: its length); the first bytes of the pasts,
--         up to the number of attempts (empty if no job has one); id, worker, attempt and 1 if the job died
--         (else 0) of each expired lease that was ended
-- State   ready -> leased; leased and expired -> leased, dead, waiting or absent
local set = call('HMGET', META, 'paused', 'concurrency', 'lease', 'fence', 'levels', 'rate_jobs')
local paused, levels = set[1], set[5]
local limits = (set[2] or set[6]) and load_limits(now)
local max, ends, left = tonumber(ARGV[2]), tonumber(ARGV[6]), tonumber(ARGV[7])
local free = paused and 0 or limits and limits.free() or math.huge
local first = math.max((tonumber(set[4]) or 0) + 1, math.min(micros, math.floor(MAX_COUNTER / 2)))
local wanted = math.min(max, free, limits and limits.tokens() or math.huge, MAX_COUNTER - first + 1)
local ends_at = now + (tonumber(ARGV[3]) or math.ceil(tonumber(set[3]) or 30000))
if wanted <= 0 then
  return { now, ends_at, free > 0 and first or 0, soonest(paused, free, levels, limits), 0, {}, {}, {}, {} }
end

local upto = text(now)
local expired = call('ZRANGE', LEASED, '-inf', upto, 'BYSCORE', 'LIMIT', '0', text(wanted + ends), 'WITHSCORES')
-- The jobs to lease: ids and due times, alternating; and the base of each, unless that is 0 for all.
local found = call('ZRANGE', DUE, '-inf', upto, 'BYSCORE', 'LIMIT', '0', text(wanted), 'WITHSCORES')
local base_of, ended, full, reports = nil, 0, false, nil
if expired[1] or levels then
  found, base_of, ended, full, reports = load_choose(now)(levels, found, expired, wanted, ends, left)
end

-- Reads the records, and drops the jobs that would exceed the bytes. A few at a time: all of them may be
-- large.
local GROUP = 16
local records, cut_off = {}, false
for n = 1, #found, 2 * GROUP do
  local group = {}
  for i = n, math.min(n + 2 * GROUP, #found) - 1, 2 do group[#group + 1] = found[i] end
  for _, record in ipairs(call('HMGET', JOB, unpack(group))) do
    local bytes = content_bytes(record)
    cut_off = bytes > left
    if cut_off then break end
    left = left - bytes
    records[#records + 1] = record and #record > MAX_RECORD and #record or record
  end
  if cut_off then break end
end
full = full or cut_off
for i = #found - 1, 2 * #records + 1, -2 do
  -- If its lease has expired, it is in no list now.
  if base_of then call('ZADD', DUE, text(base_of[(i + 1) / 2] + found[i + 1]), found[i]) end
  found[i], found[i + 1] = nil, nil
end

-- Redis keeps small sets and hashes as lists and searches them from the start, once per entry. An entry of
-- more than 64 bytes makes them tables, and they stay tables when it is removed. No id is empty or has
-- bytes that are not UTF-8.
local MANY = 16
local long = #records >= MANY and string.rep('\255', 65)

local ids, leases, places, n = {}, {}, {}, 0
local from = pack('>I6I6B', now, now, 0) .. ARGV[5]
upto = text(ends_at)
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
  places[at + 1], places[at + 2] = base_of and text(base_of[n] + ends_at) or upto, id
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
  if limits then limits.take(n) end
  call('HSET', META, 'fence', text(first + n - 1))
  if call('EXISTS', PAST) == 1 then
    pasts = call('HMGET', PAST, unpack(ids))
    for i = 1, n do pasts[i] = pasts[i] and string.sub(pasts[i], 1, 4) end
  end
end
local more = full and -3 or -2
if not full and n < max then more = soonest(paused, limits and limits.free() or math.huge, levels, limits) end
return { now, ends_at, first, more, ended, found, records, pasts, reports or {} }
