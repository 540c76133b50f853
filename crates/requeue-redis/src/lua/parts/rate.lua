-- The rate limit of a kind, which only a kind in layout 2 can have: a bucket of tokens. What is missing from a full
-- bucket is counted in parts; a token has as many as `per` has milliseconds, and `jobs` parts are refilled per
-- millisecond. nil: no limit. Needs: lists.
local rate, read_rate, tokens, take_tokens, throttled_until
if DONE then
  -- Reads the rate limit, and refills the bucket.
  read_rate = function()
    local set = call('HMGET', META, 'rate_jobs', 'rate_per', 'rate_burst', 'rate_parts', 'rate_at')
    local jobs, per, burst = tonumber(set[1]), tonumber(set[2]), tonumber(set[3])
    if not (jobs and per and burst) then return end
    local parts, at = tonumber(set[4]) or 0, tonumber(set[5]) or 0
    per = math.max(math.floor(per), 1)
    -- The default burst is what the rate allows in 100 ms.
    if burst == 0 then burst = math.min(math.max(math.floor(jobs * 100 / per), 1), 1000000) end
    rate = { jobs = jobs, per = per, burst = burst }
    rate.parts = math.max(parts - math.max(now - at, 0) * jobs, 0)
    rate.at = math.max(at, now)
  end

  -- Returns how many jobs may be leased now.
  tokens = function()
    return math.max(math.floor((rate.burst * rate.per - rate.parts) / rate.per), 0)
  end

  -- Takes tokens; if `count` is negative, gives them back.
  take_tokens = function(count)
    rate.parts = math.max(rate.parts + count * rate.per, 0)
    call('HSET', META, 'rate_parts', text(rate.parts), 'rate_at', text(rate.at))
  end

  -- Returns when the next job may be leased, or nil if that is now.
  throttled_until = function()
    local missing = rate.parts - (rate.burst - 1) * rate.per
    -- Counted from `at`: if the clock went back, nothing is refilled until it is there again.
    return missing > 0 and rate.at + math.ceil(missing / rate.jobs) or nil
  end
end
