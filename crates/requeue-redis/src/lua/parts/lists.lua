-- The lists of pending and leased jobs. In layout 1 all jobs have priority 0: pending ones are in `due`, leased
-- ones in `leased`. In layout 2 each priority has its own lists, `due0` to `due9` and `leased0` to `leased9`, and
-- META contains `levels`: the priorities in use as digits, the highest first.
--
-- Each function or table that a script creates makes every call slower. Those for layout 2 are created only if the
-- client has sent its keys; if they are missing, a script must return MORE KEYS before it changes anything.
-- In layout 1, `levels`, `dues` and `leaseds` are nil, unless a script sets the lists to those of that layout.
local levels, dues, leaseds
local DONE = KEYS[30]
local use_levels, priority_in, due_of, leased_of
if DONE then
  -- Uses the lists of these priorities.
  use_levels = function(digits)
    levels, dues, leaseds = digits, {}, {}
    for i = 1, #digits do
      local digit = tonumber(string.sub(digits, i, i)) or 0
      dues[i], leaseds[i] = KEYS[10 + digit], KEYS[20 + digit]
    end
  end

  -- Returns the priority in the first byte of a content.
  priority_in = function(flags)
    return math.floor(flags / 4) % 16
  end

  -- Returns the list for a pending job with this record or successor. If its priority is damaged, that is the one
  -- of the lowest.
  due_of = function(record)
    local priority = priority_in(string.byte(record, 20))
    return dues[string.find(levels, priority, 1, true) or #dues]
  end

  -- Returns the list that a leased job with this record is in. A record that is damaged does not tell it.
  leased_of = function(id, record)
    local priority = record and #record >= MIN_RECORD and priority_in(string.byte(record, 20))
    local first = priority and string.find(levels, priority, 1, true)
    if first and call('ZSCORE', leaseds[first], id) then return leaseds[first] end
    for i = 1, #leaseds do
      if call('ZSCORE', leaseds[i], id) then return leaseds[i] end
    end
    return leaseds[1]
  end
end
