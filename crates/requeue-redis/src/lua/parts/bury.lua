-- Needs: past.

-- Removes a job from all keys except the lists.
local function forget(id)
  call('HDEL', JOB, id)
  call('HDEL', PAST, id)
end

-- The settings that limit dead jobs: fields with the age in milliseconds and the count, and their defaults.
local KEPT_DEAD = { 'retention_age', 'retention_count', 604800000, 100000 }

-- Drops up to `max` dead or done jobs from the start of `list` that exceed the age or the count to keep. Returns how
-- many.
local function drop_old(list, kept, max)
  local set = call('HMGET', META, kept[1], kept[2])
  local oldest = now - math.floor(tonumber(set[1]) or kept[3])
  local extra = call('ZCARD', list) - (tonumber(set[2]) or kept[4])
  local jobs = call('ZRANGE', list, 0, max - 1, 'WITHSCORES')
  local dropped = 0
  while dropped < max and jobs[2 * dropped + 1]
      and (dropped < extra or tonumber(jobs[2 * dropped + 2]) < oldest) do
    dropped = dropped + 1
    local id = jobs[2 * dropped - 1]
    call('ZREM', list, id)
    forget(id)
  end
  return dropped
end

local function count_death(past)
  past.deaths = math.min(past.deaths + 1, 4294967295)
end

-- Makes a job dead that is in no list.
local function bury(id, past, due)
  count_death(past)
  past.due, past.updated = due, now
  keep_past(id, past)
  call('ZADD', DEAD, now, id)
  drop_old(DEAD, KEPT_DEAD, 1)
end

local function dies(past)
  return past.attempts >= (tonumber(call('HGET', META, 'max_attempts')) or 20)
end
