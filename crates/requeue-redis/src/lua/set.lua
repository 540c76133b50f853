-- Stores the settings of a kind.
--
-- ARGV    now or ''; '1' if the kind is registered in the deployment, else ''; then fields and values,
--         alternating; an empty value removes the field, so that the default applies
-- Reply   1 stored; 0 the kind is not registered and nothing was done
-- State   unchanged
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
