-- Returns the jobs with the given ids, in that order. Leaves out jobs that do not exist.
--
-- ARGV    now or ''; state (w waiting, r ready, l leased, d dead, o done, '' any); max. number of jobs; max.
--         bytes of records (but at least one job); then ids
-- Reply   now; how many of the ids were examined; then for each job: id, state (letter as above), its time
--         in its list, record, lease, successor, past; of a value that is too long: its length
-- State   unchanged
local wanted, max, bytes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local found, examined, size = {}, 0, 0
-- The length of the longest record and successor, and of the longest lease or past.
local MAX_RECORD, MAX_OTHER = 1048725, 65536

local function shown(value, max)
  return value and #value > max and #value or value or ''
end

for i = 5, #ARGV do
  if #found >= 7 * max or size > bytes then break end
  examined = examined + 1
  local id = ARGV[i]
  local waits, runs, died, done = find(id)
  local state = runs and 'l' or died and 'd' or done and 'o' or 'w'
  local at = waits or runs or died or done
  if waits and tonumber(waits) <= now then state = 'r' end
  if at and (wanted == '' or wanted == state) then
    local record = call('HGET', JOB, id)
    if record then
      local lease = state == 'l' and call('HGET', LEASE, id)
      local next = state == 'l' and call('HGET', NEXT, id)
      local past = call('HGET', PAST, id)
      local n = #found
      found[n + 1], found[n + 2], found[n + 3], found[n + 4] = id, state, at, shown(record, MAX_RECORD)
      found[n + 5], found[n + 6], found[n + 7] = shown(lease, MAX_OTHER), shown(next, MAX_RECORD), shown(past, MAX_OTHER)
      size = size + #record + (next and #next or 0)
    end
  end
end
return { now, examined, found }
