-- Needs: lists.
local add_level, need_level
if DONE then
  -- Changes the kind to layout 2 if it has layout 1, and adds lists for a priority. Afterwards `due` is a text, so
  -- that versions that know only layout 1 get an error.
  add_level = function(priority)
    if not levels then
      if call('EXISTS', DUE) == 1 then call('RENAME', DUE, KEYS[10]) end
      if call('EXISTS', LEASED) == 1 then call('RENAME', LEASED, KEYS[20]) end
      call('SET', DUE, 'layout 2')
      levels = call('EXISTS', JOB) == 1 and '0' or ''
    end
    local all, digits = levels .. (priority or ''), {}
    for digit = 9, 0, -1 do
      if string.find(all, digit, 1, true) then digits[#digits + 1] = digit end
    end
    use_levels(table.concat(digits))
    call('HSET', META, 'levels', levels)
  end

  -- Adds lists for the priority of this content, unless the kind has them.
  need_level = function(content)
    local priority = priority_in(string.byte(content))
    if levels then
      if string.find(levels, priority, 1, true) then return end
    elseif priority == 0 then
      return
    end
    add_level(priority)
  end
end
