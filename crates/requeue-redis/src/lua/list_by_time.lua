-- Returns jobs in one state, ordered by their times in their lists and, among equal times, by the bytes of their
-- ids: so the jobs of one priority are in this order already, and those of several priorities are merged.
--
-- ARGV    now or ''; state (w waiting, r ready, l leased, d dead, o done); 1 if the latest is first (else 0);
--         time and id after which to begin, or '' and ''; max. number of jobs; max. bytes of records (but at
--         least one job)
-- Reply   1 if more may follow (else 0); time and id of the last that was examined, or '' and ''; then for each
--         job as in view
-- State   unchanged
local wanted, newest, after, after_id = ARGV[2], ARGV[3] == '1', ARGV[4], ARGV[5]
local max, bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
-- How many entries of a list are read at a time, and how many are examined in one call. Only entries whose records
-- are missing make a call examine more than it returns.
local CHUNK, MAX_EXAMINED = 100, 2000

-- Returns whether a text comes before another in the order of their bytes. The order of Lua depends on the locale
-- of the server.
local function precedes(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local key = wanted == 'l' and LEASED or wanted == 'd' and DEAD or wanted == 'o' and DONE or DUE

-- Returns the number of entries before the given time and id in the range with this base, including it unless the latest
-- is first. Searches among those of the same time, of which there may be millions.
local function rank(base)
  local score = text(base + math.min(after, LEVEL))
  local low = call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local id = call('ZRANGE', key, text(middle), text(middle))[1]
    if precedes(id, after_id) or not newest and id == after_id then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Moves to the next entry of a range. Its time is nil at the end.
local function advance(list)
  list.index = list.index + (newest and -2 or 2)
  if not list.entries[list.index] then
    local first, last = list.first, list.last
    list.time = nil
    if first > last then return end
    if newest then
      first = math.max(first, last - CHUNK + 1)
      list.last = first - 1
    else
      last = math.min(last, first + CHUNK - 1)
      list.first = last + 1
    end
    list.entries = call('ZRANGE', key, text(first), text(last), 'WITHSCORES')
    list.index = newest and #list.entries - 1 or 1
  end
  list.id, list.time = list.entries[list.index], list.entries[list.index + 1] - list.base
end

-- Returns whether the entry of one range comes before that of another.
local function is_first(one, other)
  if newest then one, other = other, one end
  if one.time ~= other.time then return one.time < other.time end
  return precedes(one.id, other.id)
end

-- Returns the number of entries with a lower score.
local function below(score)
  return call('ZCOUNT', key, '-inf', '(' .. text(score))
end

local lists = {}
for i, base in ipairs(bases_of(call('HGET', META, 'levels'))) do
  local first, last = below(base + (wanted == 'w' and now + 1 or 0)), below(base + (wanted == 'r' and now + 1 or LEVEL)) - 1
  if after ~= '' and newest then last = math.min(last, rank(base) - 1) end
  if after ~= '' and not newest then first = math.max(first, rank(base)) end
  lists[i] = { base = base, first = first, last = last, entries = {}, index = 1 }
  advance(lists[i])
end

local examined, at, id = 0, '', ''
while true do
  local next
  for _, list in ipairs(lists) do
    if list.time and (not next or is_first(list, next)) then next = list end
  end
  if not next then return { 0, at, id, found } end
  if #found >= 7 * max or size > bytes or examined >= MAX_EXAMINED then return { 1, at, id, found } end
  examined, at, id = examined + 1, text(next.time), next.id
  show(id, wanted, at)
  advance(next)
end
