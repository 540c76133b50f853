-- Sets what is set for a kind.
--
-- ARGV    now or '', '1' if the kind is among the kinds of the deployment, then fields and values
--         in turn; an empty value: the default
-- Answer  1; 0: the kind is not among those of the deployment, and nothing was done
-- State   stays
if ARGV[2] == '' and call('EXISTS', META) == 0 then return 0 end
call('HSETNX', META, 'generation', 0)
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    call('HDEL', META, ARGV[i])
  else
    call('HSET', META, ARGV[i], ARGV[i + 1])
  end
end
wake(now)
return 1
