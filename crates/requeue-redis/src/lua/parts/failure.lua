-- Failed attempts that a worker reports: retries and burials. Needs: past, fail, bury, lease.

-- Returns the backoff in milliseconds after this many failures.
local function backoff(failures, part)
  local set = call('HMGET', META, 'backoff_base', 'backoff_max', 'backoff_jitter')
  local longest = tonumber(set[2]) or 3600000
  local delay = longest
  if failures <= 32 then delay = math.min((tonumber(set[1]) or 1000) * 2 ^ (failures - 1), longest) end
  local percent = math.min(tonumber(set[3]) or 20, 100)
  return math.ceil(delay - math.floor(math.floor(delay) * percent * part / 6553600))
end

-- Settles a job that is in no list: retries it (`how` is r) after the delay `length`, or the backoff of the kind without
-- the jitter `part`, or buries it (b). Returns the letter and, for a retry, the due time.
local function failure(levels, id, how, length, problem, part, lease, record, next)
  local _, created = cut('>I7I6', record)
  local due, began, worker = lease_parts(lease)
  local past = past_of(id, created)
  fail(past, worker, began, now, problem)
  past.updated = now
  local later, put_at
  if next then
    later, _, put_at = cut('>I6I7I6', next)
    call('HSET', JOB, id, successor(next, created))
  end
  if how == 'b' and next then
    -- The successor counts as a put on the dead job: it revives it.
    past.attempts, past.floor, past.first = 0, 0, put_at
    count_death(past)
    keep_past(id, past)
    enqueue(levels, id, later, next)
    return 'D'
  end
  if how == 'r' then
    past.floor = now + (length or backoff(past.attempts, part))
    due = math.max(past.floor, later or 0)
  end
  if how == 'b' or dies(past) then
    bury(id, past, due)
    return 'D'
  end
  keep_past(id, past)
  enqueue(levels, id, due, next or record)
  return 'R', due
end
