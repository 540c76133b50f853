-- Returns counts and counters of a kind.
--
-- ARGV    now or ''
-- Reply   number of pending, leased, dead, done and ready jobs; due time of the first ready job or -1;
--         generation; fence; 1 if the kind is paused (else 0); until when its rate limit allows no claim, or -1;
--         1 if it is pushed (else 0); 1 if it has settings or schedules (else 0)
-- State   unchanged
local set = call('HMGET', META, 'generation', 'fence', 'paused', 'lease', 'levels', 'push', 'rate_jobs')
local levels, ready = set[5], 0
for _, base in ipairs(bases_of(levels)) do
  ready = ready + call('ZCOUNT', DUE, text(base), text(base + now))
end
local throttled_until = set[7] and load_limits(now).throttled_until() or 0
local at = head(levels)
return {
  call('ZCARD', DUE), call('ZCARD', LEASED), call('ZCARD', DEAD), call('ZCARD', DONE), ready,
  at <= now and at or -1,
  tonumber(set[1]) or 0, tonumber(set[2]) or 0,
  set[3] and 1 or 0, throttled_until > 0 and throttled_until or -1, set[6] and 1 or 0,
  (set[4] or call('EXISTS', SCHEDULES) == 1) and 1 or 0,
}
