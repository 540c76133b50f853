-- Chooses the jobs of a claim if leases have expired or jobs may have priorities. Needs: bases, expiry, content_bytes.

-- Inserts a job that has become due into `line`, in due order, not before position `at`.
local function join(line, at, id, score)
  while line[at] and tonumber(line[at + 1]) <= score do at = at + 2 end
  table.insert(line, at, text(score))
  table.insert(line, at, id)
end

-- `ready` and `expired` are the ready jobs and the expired leases of priority 0: ids and scores, alternating.
-- Ends the leases that come first: at most `ends` whose jobs cannot be claimed. Returns the jobs to lease, ids and due
-- times, alternating; the base of each; how many leases were ended whose jobs were not chosen; whether the next job has
-- more than `left` bytes; the leases that were ended.
local function choose(levels, ready, expired, wanted, ends, left)
  local bases = bases_of(levels)
  ready, expired = { [#bases] = ready }, { [#bases] = expired }
  for i = 1, #bases - 1 do
    local from, upto = text(bases[i]), text(bases[i] + now)
    ready[i] = call('ZRANGE', DUE, from, upto, 'BYSCORE', 'LIMIT', '0', text(wanted), 'WITHSCORES')
    expired[i] = call('ZRANGE', LEASED, from, upto, 'BYSCORE', 'LIMIT', '0', text(wanted + ends), 'WITHSCORES')
  end
  local ageing = math.floor(tonumber(call('HGET', META, 'ageing')) or 600000)
  local found, base_of, ended, d, l = {}, {}, 0, {}, {}
  for i = 1, #bases do d[i], l[i] = 1, 1 end
  local best, best_at, list, is_lease
  local function compare(i, score, leased)
    if not score then return end
    local at, level = score - bases[i], bases[i] / LEVEL
    if ageing > 0 then level = level + math.floor((now - at) / ageing) end
    if not best or level > best or level == best and at < best_at then
      best, best_at, list, is_lease = level, at, i, leased
    end
  end
  while #found < 2 * wanted and ended < ends do
    -- Only the first jobs of the lists are compared: no other has a higher level.
    best = nil
    for i = 1, #bases do
      compare(i, ready[i][d[i] + 1], false)
      compare(i, expired[i][l[i] + 1], true)
    end
    if not best then break end
    local id = is_lease and expired[list][l[list]] or ready[list][d[list]]
    -- A lease is not ended if its job, with the content of the successor, does not fit.
    local record
    if not is_lease then
      record = call('HGET', JOB, id)
    elseif string.byte(call('HGET', LEASE, id) or '', 34) ~= 1 then
      record = call('HGET', NEXT, id) or call('HGET', JOB, id)
    end
    local bytes = content_bytes(record)
    if bytes > left then return found, base_of, ended, true, reports end
    local due = best_at
    if is_lease then
      l[list] = l[list] + 2
      local score
      due, score = expiry(levels, id, bases[list] + best_at)
      if not due then
        ended = ended + 1
        for i = 1, #bases do
          local at = score and score - bases[i]
          if at and at >= 0 and at <= now then join(ready[i], d[i], id, score) end
        end
      end
    else
      d[list] = d[list] + 2
    end
    if due then
      found[#found + 1], found[#found + 2] = id, text(due)
      base_of[#found / 2] = bases[list]
      left = left - bytes
    end
  end
  return found, base_of, ended, false, reports
end
