-- Returns how many more jobs may be leased. Expired leases do not count.
local function room(concurrency)
  if not concurrency then return math.huge end
  return tonumber(concurrency) - call('ZCOUNT', LEASED, '(' .. text(now), '+inf')
end

-- Returns in how many milliseconds a claim may find a job, if nothing changes; -1 if never.
local function soonest(paused, free)
  if paused then return -1 end
  local at
  if free <= 0 then
    at = call('ZRANGE', LEASED, '(' .. text(now), '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')[2]
  else
    at = call('ZRANGE', DUE, '0', '0', 'WITHSCORES')[2]
    local ends = call('ZRANGE', LEASED, '0', '0', 'WITHSCORES')[2]
    if not at or ends and tonumber(ends) < tonumber(at) then at = ends end
  end
  return at and math.max(at - now, 0) or -1
end
