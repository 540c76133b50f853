-- Cancels jobs, runs them now, or revives them. The ids must be distinct.
--
-- ARGV    now or ''; then for each job: id, action (c cancel, n run now, v revive)
-- Reply   one letter per job.
--         Done: R removed; E will end with its lease; Y due now; V revived
--         Not done: a absent; l leased without a successor; d not dead; o done; b its record is damaged
-- State   any -> absent; waiting, dead -> ready; leased -> cancelled, or its successor is due now
local letters = {}
local levels = call('HGET', META, 'levels')
local before = head(levels)

local function cancel(id, runs)
  if not runs then
    for _, list in ipairs({ DUE, DEAD, DONE }) do call('ZREM', list, id) end
    forget(id)
    return 'R'
  end
  local lease = call('HGET', LEASE, id)
  call('HDEL', NEXT, id)
  if not lease or #lease < MIN_LEASE then
    -- No worker has a receipt for it.
    call('ZREM', LEASED, id)
    call('HDEL', LEASE, id)
    forget(id)
    return 'R'
  end
  call('HSET', LEASE, id, string.sub(lease, 1, 27) .. pack('>I6B', now, 1) .. string.sub(lease, 35))
  return 'E'
end

local function run_now(id, waits, runs)
  if runs then
    local next = call('HGET', NEXT, id)
    if not next then return 'l' end
    local lease = call('HGET', LEASE, id)
    if #next < MIN_RECORD or not lease or #lease < MIN_LEASE then return 'b' end
    call('HSET', LEASE, id, string.sub(lease, 1, 27) .. pack('>I6', now) .. string.sub(lease, 34))
    call('HSET', NEXT, id, pack('>I6', math.min(cut('>I6', next), now)) .. string.sub(next, 7))
    return 'Y'
  end
  local old = call('HGET', JOB, id)
  if not old or #old < MIN_RECORD then return 'b' end
  local generation, created = cut('>I7I6', old)
  call('HSET', JOB, id, pack('>I7I6I6', generation, created, now) .. string.sub(old, 20))
  local past = past_of(id, created)
  if past.floor > 0 then
    past.floor = 0
    keep_past(id, past)
  end
  if waits % LEVEL > now then call('ZADD', DUE, text(score_of(levels, now, old)), id) end
  return 'Y'
end

local function revive(id)
  local old = call('HGET', JOB, id)
  if not old or #old < MIN_RECORD then return 'b' end
  local _, created = cut('>I7I6', old)
  local past = past_of(id, created)
  past.attempts, past.floor, past.updated = 0, 0, now
  keep_past(id, past)
  call('ZREM', DEAD, id)
  call('ZADD', DUE, text(score_of(levels, now, old)), id)
  return 'V'
end

for i = 1, (#ARGV - 1) / 2 do
  local id, what = ARGV[2 * i], ARGV[2 * i + 1]
  local waits, runs, died, done = find(id)
  if not (waits or runs or died or done) then
    letters[i] = 'a'
  elseif what == 'c' then
    letters[i] = cancel(id, runs)
  elseif died then
    letters[i] = revive(id)
  elseif what ~= 'n' then
    letters[i] = 'd'
  elseif done then
    letters[i] = 'o'
  else
    letters[i] = run_now(id, waits, runs)
  end
end
local at = head(levels)
if at < before then wake(at) end
return table.concat(letters)
