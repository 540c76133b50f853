-- Ends a lease that ended at `ended` and that nobody settled: a failed attempt. Answers since when
-- the job can be claimed, if it can; then it is in no list yet. Otherwise it is seen to; answers
-- nil, and when it is due where it was cancelled and has a successor.
--
-- `reports` has four entries for each lease that it ended: id, worker, attempt, and 1 if the job died
-- of it or else 0.
local reports = {}

local function expiry(id, ended)
  local lease, next, record = call('HGET', LEASE, id), call('HGET', NEXT, id), call('HGET', JOB, id)
  unlease(id, next)
  -- Without a record: somebody has deleted by hand.
  if not lease or not record then return nil, end_job(id, next) end
  local _, created = cut('>I7I6', record)
  local _, began, worker = lease_parts(lease)
  local past = past_of(id, created)
  local n = #reports
  reports[n + 1], reports[n + 2], reports[n + 3], reports[n + 4] = id, worker, past.attempts + 1, 0
  if is_cancelled(lease) then return nil, end_job(id, next) end
  fail(past, worker, began, ended)
  -- The lease was the wait: it needs no further backoff.
  local due = ended
  if next then
    call('HSET', JOB, id, successor(next, created))
    local later = cut('>I6', next)
    if later > now then due = later end
  end
  if dies(past) then
    reports[n + 4] = 1
    bury(id, past, due)
    return nil
  end
  past.updated = now
  keep_past(id, past)
  if due > now then
    call('ZADD', DUE, due, id)
    return nil
  end
  return due
end
