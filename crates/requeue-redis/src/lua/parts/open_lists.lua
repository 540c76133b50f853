-- Opens the lists of the kind, whatever its layout. Must come before anything is changed. Needs: lists.
local in_use = call('HGET', META, 'levels')
if in_use then
  if not DONE then return { ok = 'MORE KEYS' } end
  use_levels(in_use)
else
  dues, leaseds = { DUE }, { LEASED }
end

