-- Returns the jobs with the given ids, in that order. Leaves out jobs that do not exist.
--
-- ARGV    now or ''; state (w waiting, r ready, l leased, d dead, o done, '' any); max. number of jobs; max.
--         bytes of records (but at least one job); then ids
-- Reply   now; how many of the ids were examined; then for each job: id, state (letter as above), its time
--         in its list, record, lease, successor, past; of a value that is too long: its length
-- State   unchanged
local wanted, max, bytes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local examined = 0

for i = 5, #ARGV do
  if #found >= 7 * max or size > bytes then break end
  examined = examined + 1
  local id = ARGV[i]
  local waits, runs, died, done = find(id)
  local state = runs and 'l' or died and 'd' or done and 'o' or 'w'
  local score = waits or runs or died or done
  local at = score and score % LEVEL
  if waits and at <= now then state = 'r' end
  if at and (wanted == '' or wanted == state) then show(id, state, text(at)) end
end
return { now, examined, found }
