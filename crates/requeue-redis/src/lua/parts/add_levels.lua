-- Returns the levels in use, and those of the digits `more`: see score.lua.
local function add_levels(levels, more)
  local all, digits = (levels or '') .. more, ''
  for digit = 9, 1, -1 do
    if string.find(all, digit, 1, true) then digits = digits .. digit end
  end
  return digits
end
