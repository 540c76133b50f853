-- The highest generation and fence.
local MAX_COUNTER = 9007199254740991

-- Formats a number for a command. Commands take Lua numbers too, but convert them more slowly.
local function text(number)
  return string.format('%.0f', number)
end
