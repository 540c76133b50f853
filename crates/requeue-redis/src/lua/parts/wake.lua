-- Notifies waiting clients that a job may be claimable at `at`, which is earlier than they know.
local function wake(at)
  if at == math.huge then return end
  call('PUBLISH', string.sub(META, 1, -5) .. 'wake', text(now) .. ' ' .. text(at))
end

-- Returns the due time of the first pending job, or math.huge if there is none.
local function head()
  return tonumber(call('ZRANGE', DUE, '0', '0', 'WITHSCORES')[2]) or math.huge
end
