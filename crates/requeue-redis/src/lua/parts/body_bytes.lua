-- Returns the length of the body in a record or successor; 0 if that is missing or too long.
local MAX_BODY = 1048576
local function body_bytes(record)
  if not record then return 0 end
  local bytes = #record - 20
  if (string.byte(record, 20) or 0) % 4 == 3 then bytes = bytes - 1 - (string.byte(record, 21) or 0) end
  return bytes > MAX_BODY and 0 or math.max(bytes, 0)
end
