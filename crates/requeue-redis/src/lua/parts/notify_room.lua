-- Leases are over. Where no more than so many may be leased at once, there is room again, perhaps for
-- one whose lease expired: tells those who wait to look. Answers whether.
local function notify_room()
  if call('HEXISTS', META, 'concurrency') == 0 then return false end
  call('PUBLISH', string.sub(META, 1, -5) .. 'wake', '')
  return true
end
