-- Settles leases. The ids must be distinct.
--
-- ARGV    now or ''; then for each job:
--         id; fence and nonce (15 bytes)
--         action: a ack, w ack with a result, r retry, b bury, q requeue, l release, e extend
--         milliseconds of the delay or of the lease; '' the kind's backoff or lease
--         error; or the result, as a content; or ''
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

local function settle(id, how, length, more, part, lease)
  local next, record = call('HGET', NEXT, id), call('HGET', JOB, id)
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
  if how == 'e' then return extend(id, lease, length) end
  local acked, damaged = how == 'a' or how == 'w', not record or #record < MIN_RECORD
  if not acked and damaged then return 'B' end
  if how == 'q' and not next and (tonumber(call('HGET', META, 'generation')) or 0) >= MAX_COUNTER then return 'N' end
  unlease(id, stored)
  if how == 'l' then return release(levels, id, lease, record, next) end
  if how == 'r' or how == 'b' then return failure(levels, id, how, length, more, part, lease, record, next) end
  if acked and not next and set[3] and not damaged then
    load_done(now)(id, record, lease, how == 'w' and more or nil)
    return 'A'
  end
  if how == 'q' and not next then
    local generation = call('HINCRBY', META, 'generation', 1)
    next = pack('>I6I7I6', now + length, generation, now) .. string.sub(record, 20)
  end
  end_job(levels, id, next, true)
  return 'A'
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
