-- Extends a lease, and never shortens it. Returns the letter and the end of the lease. Needs: numbers, level.
local function extend(id, lease, length)
  local ends = now + (length or math.ceil(tonumber(call('HGET', META, 'lease')) or 30000))
  local score = tonumber(call('ZSCORE', LEASED, id)) or 0
  local base = score - score % LEVEL
  ends = math.max(ends, score - base)
  call('ZADD', LEASED, text(base + ends), id)
  call('HSET', LEASE, id, string.sub(lease, 1, 27) .. pack('>I6', now) .. string.sub(lease, 34))
  return 'E', ends
end
