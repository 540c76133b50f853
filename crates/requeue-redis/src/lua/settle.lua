-- Settles leases. The ids must be distinct.
--
-- ARGV    now or ''; then for each job:
--         id; fence and nonce (15 bytes)
--         action: a ack, w ack with a result, r retry, b bury, q requeue, l release, e extend
--         milliseconds of the delay or of the lease; '' the kind's backoff or lease
--         error; or the result: flags, content type, body; or ''
--         how much of the jitter to subtract, in 65536ths
-- Reply   one letter per job, then one number for each R and E: A acked or requeued; R retry, and the due
--         time; D dead; F released; E extended, and the end of the lease; X was cancelled; L lease lost;
--         N requeue: no generation is left; B not done, because the record is damaged
-- State   leased -> pending, dead, done, leased for longer, or absent
local PER_JOB = 6
local letters, numbers = {}, {}
local set = call('HMGET', META, 'concurrency', 'levels', 'keep_done_age', 'rate_jobs')
local levels, limits = set[2], nil
-- `freed`: a lease has ended. `returned`: a token was given back.
local before, freed, returned = head(levels), false, false

-- Returns the backoff in milliseconds after this many failures.
local function backoff(failures, part)
  local set = call('HMGET', META, 'backoff_base', 'backoff_max', 'backoff_jitter')
  local longest = tonumber(set[2]) or 3600000
  local delay = longest
  if failures <= 32 then delay = math.min((tonumber(set[1]) or 1000) * 2 ^ (failures - 1), longest) end
  local percent = math.min(tonumber(set[3]) or 20, 100)
  return math.ceil(delay - math.floor(math.floor(delay) * percent * part / 6553600))
end

local function settle(id, how, length, problem, part, lease)
  local next, old = call('HGET', NEXT, id), call('HGET', JOB, id)
  local stored = next
  if next and #next < MIN_RECORD then next = nil end
  if how == 'l' and set[4] then
    limits = limits or load_limits(now)
    limits.take(-1)
    returned = true
  end
  if is_cancelled(lease) then
    if how ~= 'e' then
      unlease(id, stored)
      end_job(levels, id, next)
    end
    return 'X'
  end
  if how == 'e' then
    local ends = now + (length or math.ceil(tonumber(call('HGET', META, 'lease')) or 30000))
    local score = tonumber(call('ZSCORE', LEASED, id)) or 0
    local base = score - score % LEVEL
    ends = math.max(ends, score - base)
    call('ZADD', LEASED, text(base + ends), id)
    call('HSET', LEASE, id, string.sub(lease, 1, 27) .. pack('>I6', now) .. string.sub(lease, 34))
    return 'E', ends
  end
  local acked, damaged = how == 'a' or how == 'w', not old or #old < MIN_RECORD
  if not acked and damaged then return 'B' end
  if how == 'q' and not next and (tonumber(call('HGET', META, 'generation')) or 0) >= MAX_COUNTER then return 'N' end
  unlease(id, stored)
  if acked and not next and set[3] and not damaged then
    keep_done(id, old, lease, how == 'w' and problem or nil)
    return 'A'
  end
  if acked or how == 'q' then
    if how == 'q' and not next then
      local generation = call('HINCRBY', META, 'generation', 1)
      next = pack('>I6I7I6', now + length, generation, now) .. string.sub(old, 20)
    end
    end_job(levels, id, next, true)
    return 'A'
  end

  local generation, created = cut('>I7I6', old)
  local due, began, worker = lease_parts(lease)
  local past = past_of(id, created)
  if how == 'l' then
    call('HSET', JOB, id, next and successor(next, created) or pack('>I7I6I6', generation, created, now) .. string.sub(old, 20))
    if next then
      local later = math.max(cut('>I6', next), past.floor)
      if later ~= due and not (later <= now and due <= now) then due = math.max(later, now) end
    end
    enqueue(levels, id, due, next or old)
    return 'F'
  end

  fail(past, worker, began, now, problem)
  past.updated = now
  local later, put_at
  if next then
    local _
    later, _, put_at = cut('>I6I7I6', next)
    call('HSET', JOB, id, successor(next, created))
  end
  if how == 'b' then
    if not next then
      bury(id, past, due)
      return 'D'
    end
    -- The successor counts as a put on the dead job: it revives it.
    past.attempts, past.floor, past.first = 0, 0, put_at
    count_death(past)
    keep_past(id, past)
    enqueue(levels, id, later, next)
    return 'D'
  end
  past.floor = now + (length or backoff(past.attempts, part))
  due = math.max(past.floor, later or 0)
  if dies(past) then
    bury(id, past, due)
    return 'D'
  end
  keep_past(id, past)
  enqueue(levels, id, due, next or old)
  return 'R', due
end

for i = 1, (#ARGV - 1) / PER_JOB do
  local at = PER_JOB * (i - 1) + 2
  local id = ARGV[at]
  local lease = call('HGET', LEASE, id)
  if not lease or #lease < MIN_LEASE or string.sub(lease, 1, 15) ~= ARGV[at + 1] then
    letters[i] = 'L'
  else
    letters[i], numbers[#numbers + 1] = settle(id, ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4], tonumber(ARGV[at + 5]), lease)
    freed = freed or letters[i] ~= 'E' and letters[i] ~= 'B'
  end
end
if freed and (set[1] or returned) then
  -- There is room for another lease, perhaps of a job whose lease expired: wakes all waiting clients.
  call('PUBLISH', string.sub(META, 1, -5) .. 'wake', '')
elseif freed then
  local at = head(levels)
  if at < before then wake(at) end
end
return { table.concat(letters), unpack(numbers) }
