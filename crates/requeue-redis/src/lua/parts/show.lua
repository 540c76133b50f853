-- Jobs in a reply. Needs: nothing.

-- The length of the longest record and successor, and of the longest lease or past.
local MAX_RECORD, MAX_OTHER = 1065181, 65536
-- For each job: id, state (w waiting, r ready, l leased, d dead, o done), its time in its list, record, lease,
-- successor, past; of a value that is too long: its length.
local found, size = {}, 0

local function shown(value, max)
  return value and #value > max and #value or value or ''
end

-- Adds a job, unless its record is missing.
local function show(id, state, at)
  local record = call('HGET', JOB, id)
  if not record then return end
  local lease = state == 'l' and call('HGET', LEASE, id)
  local next = state == 'l' and call('HGET', NEXT, id)
  local past = call('HGET', PAST, id)
  local n = #found
  found[n + 1], found[n + 2], found[n + 3], found[n + 4] = id, state, at, shown(record, MAX_RECORD)
  found[n + 5], found[n + 6], found[n + 7] = shown(lease, MAX_OTHER), shown(next, MAX_RECORD), shown(past, MAX_OTHER)
  size = size + #record + (next and #next or 0)
end
