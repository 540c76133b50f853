-- Begins to create a kind. If the kind is created and removed before the caller has done so, the caller has to begin
-- again: its numbers would be outdated.
--
-- ARGV    now or ''; a random text, or '' if the kind is not created after all
-- Reply   1
-- State   unchanged
if ARGV[2] == '' then
  call('HDEL', META, 'making')
elseif call('HEXISTS', META, 'generation') == 0 then
  call('HSET', META, 'making', ARGV[2])
end
return 1
