-- Returns the score of a pending or leased job with this record or successor. A damaged priority counts as 0. Needs: level.
local function score_of(levels, time, record)
  if not levels then return time end
  local flags = string.byte(record, 20)
  if flags < 4 then return time end
  local priority = math.floor(flags / 4) % 16
  if not string.find(levels, priority, 1, true) then return time end
  return time + priority * LEVEL
end
