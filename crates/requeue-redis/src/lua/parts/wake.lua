-- Needs: numbers, score.
-- Notifies waiting clients that a job may be claimable at `at`, which is earlier than they know.
local function wake(at)
  if at == math.huge then return end
  call('PUBLISH', string.sub(META, 1, -5) .. 'wake', text(now) .. ' ' .. text(at))
end

-- Returns the due time of the first pending job, or math.huge if there is none.
local function head(levels)
  local first = tonumber(call('ZRANGE', DUE, '0', '0', 'WITHSCORES')[2]) or math.huge
  if not levels then return first end
  if first >= LEVEL then first = math.huge end
  for i = 1, #levels do
    local base = LEVEL * (tonumber(string.sub(levels, i, i)) or 0)
    local from, to = text(base), '(' .. text(base + LEVEL)
    local score = call('ZRANGE', DUE, from, to, 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')[2]
    if score then first = math.min(first, score - base) end
  end
  return first
end
