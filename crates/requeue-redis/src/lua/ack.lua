-- Acks jobs that have no successor and were not cancelled, and removes them. The ids must be distinct.
--
-- ARGV    now or ''; then for each job: id, fence and nonce (15 bytes)
-- Reply   one letter per job: A acked; L lease lost; S not done, must be settled by settle.lua; K the same,
--         because the kind keeps done jobs
-- State   leased -> absent
local set = call('HMGET', META, 'concurrency', 'keep_done_age')
local ids, proofs = {}, {}
for i = 2, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
  proofs[#ids] = ARGV[i + 1]
end
local leases = call('HMGET', LEASE, unpack(ids))
local nexts = call('EXISTS', NEXT) == 1 and call('HMGET', NEXT, unpack(ids)) or {}

local letters, gone = {}, {}
for i = 1, #ids do
  local lease = leases[i]
  if not lease or string.sub(lease, 1, 15) ~= proofs[i] then
    letters[i] = 'L'
  elseif set[2] then
    letters[i] = 'K'
  elseif nexts[i] or string.byte(lease, 34) == 1 then
    letters[i] = 'S'
  else
    letters[i] = 'A'
    gone[#gone + 1] = ids[i]
  end
end
if gone[1] then
  call('ZREM', LEASED, unpack(gone))
  call('HDEL', LEASE, unpack(gone))
  call('HDEL', JOB, unpack(gone))
  if call('EXISTS', PAST) == 1 then call('HDEL', PAST, unpack(gone)) end
  -- There is room for another lease, perhaps of a job whose lease expired: wakes all waiting clients.
  if set[1] then call('PUBLISH', string.sub(META, 1, -5) .. 'wake', '') end
end
return table.concat(letters)
