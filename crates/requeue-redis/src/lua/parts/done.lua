-- Done jobs. Needs: past, bury, lease.

-- The settings that limit them, as for `drop_old`.
local KEPT_DONE = { 'keep_done_age', 'keep_done_count', 0, 0 }
-- In the first byte of the record of a done job: its content is the result.
local HAS_RESULT = 64

-- Keeps a job that is done and in no list, with the content `result` or nil.
local function keep_done(id, record, lease, result)
  local generation, created = cut('>I7I6', record)
  local flags = math.floor(string.byte(record, 20) / 4) % 16 * 4
  local content = string.char(flags)
  if result then content = string.char(flags + HAS_RESULT + string.byte(result)) .. string.sub(result, 2) end
  call('HSET', JOB, id, pack('>I7I6I6', generation, created, now) .. content)
  local past = past_of(id, created)
  local due, began, worker = lease_parts(lease)
  past.floor, past.first, past.due, past.updated = 0, 0, due, now
  past.failures = NO_FAILURES .. pack('>I6', began) .. worker
  keep_past(id, past)
  call('ZADD', DONE, now, id)
  drop_old(DONE, KEPT_DONE, 1)
end
