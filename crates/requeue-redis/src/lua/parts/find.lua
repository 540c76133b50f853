-- Returns the time of a job in its list: the first value if it is pending, the second if it is leased, the third
-- if it is dead, the fourth if it is done; no value if there is no such job. Needs: lists.
local function find(id)
  for i = 1, #dues do
    local waits = call('ZSCORE', dues[i], id)
    if waits then return waits end
    local runs = call('ZSCORE', leaseds[i], id)
    if runs then return nil, runs end
  end
  local died = call('ZSCORE', DEAD, id)
  if died then return nil, nil, died end
  return nil, nil, nil, levels and call('ZSCORE', DONE, id) or nil
end
