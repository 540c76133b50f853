-- The limits of claims: concurrency and rate. Needs: numbers, score.
--
-- The rate limit is a bucket of tokens. What is missing from a full bucket is counted in parts: a token has as many as
-- `per` has milliseconds, and `jobs` parts are refilled per millisecond.
local limits = {}
local set = call('HMGET', META, 'concurrency', 'rate_jobs', 'rate_per', 'rate_burst', 'rate_parts', 'rate_at', 'levels')
local jobs, per, burst = tonumber(set[2]), tonumber(set[3]), tonumber(set[4])
local has_rate, parts, at = jobs and per and burst, 0, now
if has_rate then
  per = math.max(math.floor(per), 1)
  -- The default burst is what the rate allows in 100 ms.
  if burst == 0 then burst = math.min(math.max(math.floor(jobs * 100 / per), 1), 1000000) end
  at = tonumber(set[6]) or 0
  parts = math.max((tonumber(set[5]) or 0) - math.max(now - at, 0) * jobs, 0)
  at = math.max(at, now)
end

-- Returns how many more jobs may be leased at the same time. Expired leases do not count.
function limits.free()
  if not set[1] then return math.huge end
  local free = tonumber(set[1])
  for _, base in ipairs(bases_of(set[7])) do
    free = free - call('ZCOUNT', LEASED, '(' .. text(base + now), '(' .. text(base + LEVEL))
  end
  return free
end

-- Returns how many jobs may be leased now at this rate.
function limits.tokens()
  return has_rate and math.max(math.floor((burst * per - parts) / per), 0) or math.huge
end

-- Takes tokens; if `count` is negative, gives them back.
function limits.take(count)
  if not has_rate then return end
  parts = math.max(parts + count * per, 0)
  call('HSET', META, 'rate_parts', text(parts), 'rate_at', text(at))
end

-- Returns when the next job may be leased at this rate, or 0 if that is now.
function limits.throttled_until()
  local missing = has_rate and parts - (burst - 1) * per or 0
  -- Counted from `at`: if the clock went back, nothing is refilled until it is there again.
  return missing > 0 and at + math.ceil(missing / jobs) or 0
end
