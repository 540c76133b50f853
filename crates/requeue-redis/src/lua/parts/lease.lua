-- Needs: lists, past.

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

-- Removes the lease. The job is in no list afterwards.
local function unlease(id, record, next)
  call('ZREM', levels and leased_of(id, record) or LEASED, id)
  call('HDEL', LEASE, id)
  if next then call('HDEL', NEXT, id) end
end

-- Ends a job whose lease was removed. If it has a successor, that becomes a new job, and its due time is
-- returned; otherwise the job is removed. After an ack, the next put counts as the first one.
local function end_job(id, next, acked)
  call('HDEL', PAST, id)
  if not next then
    call('HDEL', JOB, id)
    return nil
  end
  local due, _, put_at = cut('>I6I7I6', next)
  call('HSET', JOB, id, successor(next, put_at))
  call('ZADD', levels and due_of(next) or DUE, due, id)
  if acked then
    keep_past(id, { attempts = 0, deaths = 0, floor = 0, first = 0, due = 0, updated = 0, failures = NO_FAILURES })
  end
  return due
end
