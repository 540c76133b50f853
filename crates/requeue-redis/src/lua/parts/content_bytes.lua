-- Returns how many bytes of the content in a record or successor count towards the limits: those of the body, and as many
-- as the head says; 0 if it is missing or damaged.
local MAX_RECORD, MAX_CONTENT = 1065181, 1064960
local function content_bytes(record)
  if not record or #record > MAX_RECORD then return 0 end
  local bytes, flags = #record - 20, string.byte(record, 20) or 0
  local at = 21
  if flags > 127 then
    if bytes < 8 then return 0 end
    local counted, length = cut('>I4I4', record, 21)
    bytes, at = bytes - 8 - length, 29 + length
    if bytes < 0 then return 0 end
    bytes = bytes + counted
  end
  if flags % 4 == 3 then bytes = bytes - 1 - (string.byte(record, at) or 0) end
  return bytes > MAX_CONTENT and 0 or math.max(bytes, 0)
end
