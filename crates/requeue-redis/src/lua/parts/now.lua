-- The time in milliseconds: the server's, or the test's if ARGV[1] is not empty.
local now, micros
if ARGV[1] == '' then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  micros = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[1])
  micros = now * 1000
end
