-- Makes a job pending again that is in no list, as it was before the claim. Needs: past, lease.
local function release(levels, id, lease, record, next)
  local generation, created = cut('>I7I6', record)
  local due = lease_parts(lease)
  if next then
    call('HSET', JOB, id, successor(next, created))
    local later = math.max(cut('>I6', next), past_of(id, created).floor)
    if later ~= due and not (later <= now and due <= now) then due = math.max(later, now) end
  else
    call('HSET', JOB, id, pack('>I7I6I6', generation, created, now) .. string.sub(record, 20))
  end
  enqueue(levels, id, due, next or record)
  return 'F'
end
