-- Counts pending jobs by due time.
--
-- ARGV    now or ''; the start of each span, and the end of the last
-- Reply   number of jobs in each span, including its start and excluding its end
-- State   unchanged
local counts = {}
for i = 2, #ARGV - 1 do
  local count = 0
  for k = 1, #dues do count = count + call('ZCOUNT', dues[k], ARGV[i], '(' .. ARGV[i + 1]) end
  counts[i - 1] = count
end
return counts
