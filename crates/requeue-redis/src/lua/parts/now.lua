-- The time in milliseconds: the server's, unless a test says what it is.
local now, micros
if ARGV[1] == '' then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  micros = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[1])
  micros = now * 1000
end

-- A number as commands take it. They take numbers too, and write them in a way that takes longer.
local function text(number)
  return string.format('%.0f', number)
end
