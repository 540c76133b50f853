-- Returns in how many milliseconds a claim may find a job, if nothing changes; -1 if never. `free`: how many more jobs may
-- be leased at the same time. Needs: numbers, score.
local function soonest(paused, free, levels, limits)
  if paused then return -1 end
  local first = math.huge
  for i = 0, levels and #levels or 0 do
    local base = i > 0 and LEVEL * (tonumber(string.sub(levels, i, i)) or 0) or 0
    local from, to = text(base), '(' .. text(base + LEVEL)
    if free > 0 then
      local at = call('ZRANGE', DUE, from, to, 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')[2]
      if at then first = math.min(first, at - base) end
    else
      -- An expired lease makes no room.
      from = '(' .. text(base + now)
    end
    local ends = call('ZRANGE', LEASED, from, to, 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')[2]
    if ends then first = math.min(first, ends - base) end
  end
  if first == math.huge then return -1 end
  return math.max(first, limits and limits.throttled_until() or 0, now) - now
end
