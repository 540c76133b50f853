-- Returns counts and counters of a kind.
--
-- ARGV    now or ''
-- Reply   number of pending, leased, dead and ready jobs; due time of the first ready job or -1;
--         generation; fence; 1 if the kind is paused (else 0); 1 if it has settings or schedules (else 0)
-- State   unchanged
local upto = text(now)
local set = call('HMGET', META, 'generation', 'fence', 'paused', 'lease')
local at = head()
return {
  call('ZCARD', DUE), call('ZCARD', LEASED), call('ZCARD', DEAD), call('ZCOUNT', DUE, '-inf', upto),
  at <= now and at or -1,
  tonumber(set[1]) or 0, tonumber(set[2]) or 0,
  set[3] and 1 or 0, (set[4] or call('EXISTS', KEYS[9]) == 1) and 1 or 0,
}
