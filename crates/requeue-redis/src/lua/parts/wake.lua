-- Tells those who wait that something may be claimed at `at`, sooner than they may think.
local function wake(at)
  if at == math.huge then return end
  call('PUBLISH', string.sub(META, 1, -5) .. 'wake', text(now) .. ' ' .. text(at))
end

-- When the first that is pending is due; later than any time where there is none.
local function head()
  return tonumber(call('ZRANGE', DUE, '0', '0', 'WITHSCORES')[2]) or math.huge
end
