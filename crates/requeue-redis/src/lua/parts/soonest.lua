-- Needs: lists, rate.

-- Returns how many more jobs may be leased. Expired leases do not count.
local function room(concurrency)
  if not concurrency then return math.huge end
  local free = tonumber(concurrency)
  if not levels then return free - call('ZCOUNT', LEASED, '(' .. text(now), '+inf') end
  for i = 1, #leaseds do free = free - call('ZCOUNT', leaseds[i], '(' .. text(now), '+inf') end
  return free
end

-- Returns in how many milliseconds a claim may find a job, if nothing changes; -1 if never.
local function soonest(paused, free)
  if paused then return -1 end
  local first
  for i = 1, levels and #levels or 1 do
    local due, leased = DUE, LEASED
    if levels then due, leased = dues[i], leaseds[i] end
    local at, ends
    if free <= 0 then
      ends = call('ZRANGE', leased, '(' .. text(now), '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')[2]
    else
      at = tonumber(call('ZRANGE', due, '0', '0', 'WITHSCORES')[2])
      ends = call('ZRANGE', leased, '0', '0', 'WITHSCORES')[2]
    end
    ends = tonumber(ends)
    if ends and not (at and at < ends) then at = ends end
    if at and not (first and first < at) then first = at end
  end
  if not first then return -1 end
  return math.max(first, rate and throttled_until() or 0, now) - now
end
