-- Needs: lease, fail, bury.

-- The leases that `expiry` has ended, with four entries each: id, worker, attempt, and 1 if the job
-- died (else 0).
local reports = {}

-- Ends the lease with this score, which has expired. That counts as a failed attempt. If the job can be claimed now with
-- the same priority, returns since when; the job is then in no list. Otherwise puts the job where it belongs and returns
-- nil; if it is pending now, also returns its score.
local function expiry(levels, id, score)
  local lease, next, record = call('HGET', LEASE, id), call('HGET', NEXT, id), call('HGET', JOB, id)
  unlease(id, next)
  if next and #next < MIN_RECORD then next = nil end
  -- No lease or no record: someone has deleted or damaged keys by hand.
  if not lease or #lease < MIN_LEASE or not record or #record < MIN_RECORD then
    return nil, end_job(levels, id, next)
  end
  local _, created = cut('>I7I6', record)
  local _, began, worker = lease_parts(lease)
  local past = past_of(id, created)
  local n = #reports
  reports[n + 1], reports[n + 2], reports[n + 3], reports[n + 4] = id, worker, past.attempts + 1, 0
  if is_cancelled(lease) then return nil, end_job(levels, id, next) end
  local ended = score % LEVEL
  fail(past, worker, began, ended)
  -- The job has waited for the length of the lease: no further backoff.
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
  -- With another priority, other jobs may come first.
  if due > now or score_of(levels, ended, next or record) ~= score then
    return nil, enqueue(levels, id, due, next or record)
  end
  return due
end
