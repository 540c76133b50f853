-- Needs: lists.
-- Notifies waiting clients that a job may be claimable at `at`, which is earlier than they know.
local function wake(at)
  if at == math.huge then return end
  call('PUBLISH', string.sub(META, 1, -5) .. 'wake', text(now) .. ' ' .. text(at))
end

-- Returns the due time of the first pending job, or math.huge if there is none.
local function head()
  if not levels then return tonumber(call('ZRANGE', DUE, '0', '0', 'WITHSCORES')[2]) or math.huge end
  local first = math.huge
  for i = 1, #dues do
    local at = tonumber(call('ZRANGE', dues[i], '0', '0', 'WITHSCORES')[2])
    if at and at < first then first = at end
  end
  return first
end
