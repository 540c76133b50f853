-- Counts pending jobs by when they are due.
--
-- ARGV    now or '', then the beginning of each span, and the end of the last
-- Answer  how many in each span: from its beginning, before its end
-- State   stays
local counts = {}
for i = 2, #ARGV - 1 do
  counts[i - 1] = call('ZCOUNT', DUE, ARGV[i], '(' .. ARGV[i + 1])
end
return counts
