-- To be called after leases have ended. If the kind has a concurrency limit, there is room for another
-- lease, perhaps of a job whose lease expired: wakes all waiting clients. Returns whether it did.
local function notify_room()
  if call('HEXISTS', META, 'concurrency') == 0 then return false end
  call('PUBLISH', string.sub(META, 1, -5) .. 'wake', '')
  return true
end
