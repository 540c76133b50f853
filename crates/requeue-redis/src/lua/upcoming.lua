-- Counts pending jobs by due time.
--
-- ARGV    now or ''; the start of each span, and the end of the last
-- Reply   number of jobs in each span, including its start and excluding its end
-- State   unchanged
local counts, bases = {}, bases_of(call('HGET', META, 'levels'))
for i = 2, #ARGV - 1 do
  local count = 0
  local from, to = math.min(ARGV[i], LEVEL), math.min(ARGV[i + 1], LEVEL)
  for k = 1, #bases do count = count + call('ZCOUNT', DUE, text(bases[k] + from), '(' .. text(bases[k] + to)) end
  counts[i - 1] = count
end
return counts
