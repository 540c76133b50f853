-- Tells jobs, in the order of their ids here, and leaves out those that are not there.
--
-- ARGV    now or '', state (w waiting, r ready, l leased, d dead, '' any), how many at most,
--         how many bytes of records at most (but one job at least), then ids
-- Answer  now, how many of the ids were looked at, then for each job: id, state (one of those
--         letters), its time in its list, record, lease, successor, past
-- State   stays
local wanted, max, bytes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local told, seen, size = {}, 0, 0
for i = 5, #ARGV do
  if #told >= 7 * max or size > bytes then break end
  seen = seen + 1
  local id = ARGV[i]
  local state, at = 'w', call('ZSCORE', DUE, id)
  if at then
    if tonumber(at) <= now then state = 'r' end
  else
    state, at = 'l', call('ZSCORE', LEASED, id)
    if not at then state, at = 'd', call('ZSCORE', DEAD, id) end
  end
  if at and (wanted == '' or wanted == state) then
    local record = call('HGET', JOB, id)
    if record then
      local lease = state == 'l' and call('HGET', LEASE, id) or ''
      local next = state == 'l' and call('HGET', NEXT, id) or ''
      local n = #told
      told[n + 1], told[n + 2], told[n + 3], told[n + 4] = id, state, at, record
      told[n + 5], told[n + 6], told[n + 7] = lease, next, call('HGET', PAST, id) or ''
      size = size + #record + #next
    end
  end
end
return { now, seen, told }
