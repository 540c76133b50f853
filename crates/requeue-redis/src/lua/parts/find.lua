-- Returns the score of a job in its list: the first value if it is pending, the second if it is leased, the third
-- if it is dead, the fourth if it is done; no value if there is no such job.
local function find(id)
  local waits = call('ZSCORE', DUE, id)
  if waits then return waits end
  local runs = call('ZSCORE', LEASED, id)
  if runs then return nil, runs end
  local died = call('ZSCORE', DEAD, id)
  if died then return nil, nil, died end
  return nil, nil, nil, call('ZSCORE', DONE, id) or nil
end
