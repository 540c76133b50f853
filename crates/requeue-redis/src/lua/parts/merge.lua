-- Puts on existing jobs. `generation` is the latest of the kind, and rises with each put that has an effect.
-- Needs: past.
local MAX_DELAY = 316224000000
local generation

-- Returns the due time that a put requests, given the due time `old` of the existing job or successor.
local function asked(mode, longest, due, old, first)
  if mode == 'e' then return old and math.min(old, due) or due end
  if mode == 'd' then return math.min(due, math.max(first + longest, now)) end
  return due
end

-- Returns a record with the latest generation, updated now.
local function record(created, content)
  return pack('>I7I6I6', generation, created, now) .. content
end

local function create(id, due, content)
  generation = generation + 1
  call('HSET', JOB, id, record(now, content))
  call('ZADD', DUE, due, id)
end

-- Puts a job that may exist: `waits` is its due time if it is pending, `runs` the end of its lease if it is
-- leased, `died` its time of death if it is dead. Returns the letter of the outcome, and the generation if
-- that is not the latest.
local function merge(id, due, content, how, waits, runs, died)
  local mode, longest, condition, expected = 'r', '', '', ''
  if how ~= '' then
    mode, longest, condition, expected = string.match(how, '^(%a)(%d*)(%a?)(%d*)$')
    longest = tonumber(longest)
  end
  local old = (waits or runs or died) and call('HGET', JOB, id)
  if not old then
    if condition == 'g' then return 'G', 0 end
    create(id, asked(mode, longest, due, nil, now), content)
    return 'C'
  end
  -- A put replaces a record that is damaged.
  if #old < MIN_RECORD then old = pack('>I7I6I6', 0, now, now) end
  local newest, created = cut('>I7I6', old)
  local next = runs and call('HGET', NEXT, id)
  if next and #next < MIN_RECORD then next = nil end
  if next then
    local _
    _, newest = cut('>I6I7', next)
  end
  if condition == 'a' then return 'E', newest end
  if condition == 'g' and tonumber(expected) ~= newest then return 'G', newest end
  if mode == 'k' and (next or not runs) then return 'K', newest end
  generation = generation + 1
  local past = past_of(id, created)
  local had_no_first = past.first == 0
  if had_no_first then past.first = now end

  if died then
    past.attempts, past.floor, past.first = 0, 0, now
    keep_past(id, past)
    call('ZREM', DEAD, id)
    call('HSET', JOB, id, record(created, content))
    call('ZADD', DUE, asked(mode, longest, due, nil, now), id)
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

  waits = tonumber(waits)
  due = math.max(asked(mode, longest, due, waits, past.first), past.floor)
  -- A job that was ready and stays ready keeps its position.
  if due ~= waits and not (due <= now and waits <= now) then
    call('ZADD', DUE, math.max(due, now), id)
  end
  call('HSET', JOB, id, record(created, content))
  if had_no_first then keep_past(id, past) end
  return 'U'
end
