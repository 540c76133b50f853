-- Puts on existing jobs. Needs: score, past.

-- Returns the due time that a put requests, given the due time `old` of the existing job or successor.
local function asked(mode, longest, due, old, first)
  if mode == 'e' then return old and math.min(old, due) or due end
  if mode == 'd' then return math.min(due, math.max(first + longest, now)) end
  return due
end

local function record(generation, created, content)
  return pack('>I7I6I6', generation, created, now) .. content
end

-- Stores the record of a job that is in no list, and makes it pending.
local function place(levels, id, due, record)
  call('HSET', JOB, id, record)
  call('ZADD', DUE, score_of(levels, due, record), id)
end

-- Puts a job that may exist, with this generation. `waits` is its score if it is pending, `runs` if it is leased, `died`
-- its time of death if it is dead, `done` the time when it was done. Returns the letter of the outcome, and, if the
-- generation was not used, the generation of the job.
local function merge(levels, generation, id, due, content, how, waits, runs, died, done)
  local mode, longest, condition, expected = 'r', '', '', ''
  if how ~= '' then
    mode, longest, condition, expected = string.match(how, '^(%a)(%d*)(%a?)(%d*)$')
    longest = tonumber(longest)
  end
  local old = (waits or runs or died or done) and call('HGET', JOB, id)
  if not old or done then
    if condition == 'g' then return 'G', 0 end
    if done then
      if condition == 'n' then return 'E', old and cut('>I7', old) or 0 end
      call('ZREM', DONE, id)
      call('HDEL', PAST, id)
    end
    place(levels, id, asked(mode, longest, due, nil, now), record(generation, now, content))
    return 'C'
  end
  -- A put replaces a record that is damaged.
  if #old < MIN_RECORD then old = pack('>I7I6I6B', 0, now, now, 0) end
  local newest, created = cut('>I7I6', old)
  local next = runs and call('HGET', NEXT, id)
  if next and #next < MIN_RECORD then next = nil end
  if next then
    local _
    _, newest = cut('>I6I7', next)
  end
  if condition == 'a' or condition == 'n' then return 'E', newest end
  if condition == 'g' and tonumber(expected) ~= newest then return 'G', newest end
  if mode == 'k' and (next or not runs) then return 'K', newest end
  local present = runs and next or waits and old
  if mode == 'e' and present then
    -- The higher priority counts.
    local flags = string.byte(content)
    local more = math.floor(string.byte(present, 20) / 4) % 16 - math.floor(flags / 4) % 16
    if more > 0 then content = string.char(flags + 4 * more) .. string.sub(content, 2) end
  end
  local past = past_of(id, created)
  local had_no_first = past.first == 0
  if had_no_first then past.first = now end

  if died then
    past.attempts, past.floor, past.first = 0, 0, now
    keep_past(id, past)
    call('ZREM', DEAD, id)
    place(levels, id, asked(mode, longest, due, nil, now), record(generation, created, content))
    return 'R'
  end

  if runs then
    local lease = call('HGET', LEASE, id)
    if not lease or #lease < MIN_LEASE then lease = string.rep('\0', MIN_LEASE - 1) .. '?' end
    local put_at, sooner = now, nil
    if next then
      local _
      sooner, _, put_at = cut('>I6I7I6', next)
    end
    -- A put after a cancel is a new job, with its own first put.
    local first = put_at
    if string.byte(lease, 34) == 0 then
      first = past.first
      if had_no_first then keep_past(id, past) end
    end
    due = asked(mode, longest, due, sooner, first)
    call('HSET', NEXT, id, pack('>I6I7I6', due, generation, put_at) .. content)
    call('HSET', LEASE, id, string.sub(lease, 1, 27) .. pack('>I6', now) .. string.sub(lease, 34))
    return 'O'
  end

  local at = waits % LEVEL
  due = math.max(asked(mode, longest, due, at, past.first), past.floor)
  -- A job that was ready and stays ready keeps its position.
  if due <= now and at <= now then due = at else due = math.max(due, now) end
  local new = record(generation, created, content)
  local score = score_of(levels, due, new)
  if score ~= tonumber(waits) then call('ZADD', DUE, score, id) end
  call('HSET', JOB, id, new)
  if had_no_first then keep_past(id, past) end
  return 'U'
end
