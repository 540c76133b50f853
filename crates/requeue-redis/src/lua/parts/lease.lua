-- What a lease is: bytes 1 to 15 are its fence and nonce, 34 tells whether the job was cancelled.
local function lease_parts(lease)
  local due, claimed = cut('>I6I6', lease, 16)
  return due, claimed, string.sub(lease, 35)
end

local function is_cancelled(lease)
  return string.byte(lease, 34) == 1
end

-- What is put while a job is leased, as the record of that job.
local function successor(next, created)
  local _, generation = cut('>I6I7', next)
  return pack('>I7I6I6', generation, created, now) .. string.sub(next, 20)
end

-- Takes the lease off: the job is in no list then.
local function unlease(id, next)
  call('ZREM', LEASED, id)
  call('HDEL', LEASE, id)
  if next then call('HDEL', NEXT, id) end
end

-- The lease is off and the job over. Its successor is a job of its own; without one, it is gone.
-- Where it followed on an ack, its first put is the next one. Answers when it is due.
local function end_job(id, next, acked)
  call('HDEL', PAST, id)
  if not next then
    call('HDEL', JOB, id)
    return nil
  end
  local due, _, put_at = cut('>I6I7I6', next)
  call('HSET', JOB, id, successor(next, put_at))
  call('ZADD', DUE, due, id)
  if acked then
    keep_past(id, { attempts = 0, deaths = 0, floor = 0, first = 0, due = 0, updated = 0, failures = NO_FAILURES })
  end
  return due
end
