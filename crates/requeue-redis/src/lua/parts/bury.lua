-- Needs: past.

-- Removes a job from all keys except the three lists.
local function forget(id)
  call('HDEL', JOB, id)
  call('HDEL', PAST, id)
end

-- Drops up to `max` dead jobs that exceed the age or the count of the retention. Returns how many.
local function drop_dead(max)
  local set = call('HMGET', META, 'retention_age', 'retention_count')
  local oldest = now - math.floor(tonumber(set[1]) or 604800000)
  local extra = call('ZCARD', DEAD) - (tonumber(set[2]) or 100000)
  local dead = call('ZRANGE', DEAD, 0, max - 1, 'WITHSCORES')
  local dropped = 0
  while dropped < max and dead[2 * dropped + 1]
      and (dropped < extra or tonumber(dead[2 * dropped + 2]) < oldest) do
    dropped = dropped + 1
    local id = dead[2 * dropped - 1]
    call('ZREM', DEAD, id)
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
  drop_dead(1)
end

local function dies(past)
  return past.attempts >= (tonumber(call('HGET', META, 'max_attempts')) or 20)
end
