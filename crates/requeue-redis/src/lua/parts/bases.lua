-- Returns the bases of the priorities that jobs may have, the highest first. Needs: level.
local function bases_of(levels)
  local bases = {}
  if levels then
    for i = 1, #levels do bases[i] = LEVEL * (tonumber(string.sub(levels, i, i)) or 0) end
  end
  bases[#bases + 1] = 0
  return bases
end
