-- Tells what is known of a kind.
--
-- ARGV    now or ''
-- Answer  how many are pending, leased, dead and ready, when the first ready one was due (or -1),
--         generation, fence, whether it is paused, whether it has settings or schedules
-- State   stays
local upto = text(now)
local set = call('HMGET', META, 'generation', 'fence', 'paused', 'lease')
local at = head()
return {
  call('ZCARD', DUE), call('ZCARD', LEASED), call('ZCARD', DEAD), call('ZCOUNT', DUE, '-inf', upto),
  at <= now and at or -1,
  tonumber(set[1]) or 0, tonumber(set[2]) or 0,
  set[3] and 1 or 0, (set[4] or call('EXISTS', KEYS[9]) == 1) and 1 or 0,
}
