-- Needs: numbers, score, past.

-- Returns due time, time of the claim, and worker of a lease. Bytes 1 to 15 are fence and nonce; byte 34 is
-- 1 if the job was cancelled.
local function lease_parts(lease)
  local due, claimed = cut('>I6I6', lease, 16)
  return due, claimed, string.sub(lease, 35, 162)
end

local function is_cancelled(lease)
  return string.byte(lease, 34) == 1
end

-- Returns the record that a successor becomes.
local function successor(next, created)
  local _, generation = cut('>I6I7', next)
  return pack('>I7I6I6', generation, created, now) .. string.sub(next, 20)
end

-- Makes a job with this record or successor pending. Returns its score.
local function enqueue(levels, id, due, record)
  local score = score_of(levels, due, record)
  call('ZADD', DUE, score, id)
  return score
end

-- Removes the lease. The job is in no list afterwards.
local function unlease(id, next)
  call('ZREM', LEASED, id)
  call('HDEL', LEASE, id)
  if next then call('HDEL', NEXT, id) end
end

-- Ends a job whose lease was removed. If it has a successor, that becomes a new job, and its score is
-- returned; otherwise the job is removed. After an ack, the next put counts as the first one.
local function end_job(levels, id, next, acked)
  call('HDEL', PAST, id)
  if not next then
    call('HDEL', JOB, id)
    return nil
  end
  local due, _, put_at = cut('>I6I7I6', next)
  call('HSET', JOB, id, successor(next, put_at))
  if acked then
    keep_past(id, { attempts = 0, deaths = 0, floor = 0, first = 0, due = 0, updated = 0, failures = NO_FAILURES })
  end
  return enqueue(levels, id, due, next)
end
