-- Returns counts and counters of a kind.
--
-- ARGV    now or ''
-- Reply   number of pending, leased, dead, done and ready jobs; due time of the first ready job or -1;
--         generation; fence; 1 if the kind is paused (else 0); until when its rate limit allows no claim, or -1;
--         1 if it is pushed (else 0); 1 if it has settings or schedules (else 0)
-- State   unchanged
local upto = text(now)
local set = call('HMGET', META, 'generation', 'fence', 'paused', 'lease', 'levels', 'push')
if set[5] then
  if not DONE then return { ok = 'MORE KEYS' } end
  use_levels(set[5])
else
  dues, leaseds = { DUE }, { LEASED }
end
local pending, leased, ready, done = 0, 0, 0, 0
for i = 1, #dues do
  pending = pending + call('ZCARD', dues[i])
  leased = leased + call('ZCARD', leaseds[i])
  ready = ready + call('ZCOUNT', dues[i], '-inf', upto)
end
if levels then
  read_rate()
  done = call('ZCARD', DONE)
end
local at = head()
return {
  pending, leased, call('ZCARD', DEAD), done, ready,
  at <= now and at or -1,
  tonumber(set[1]) or 0, tonumber(set[2]) or 0,
  set[3] and 1 or 0, rate and throttled_until() or -1, set[6] and 1 or 0,
  (set[4] or call('EXISTS', KEYS[9]) == 1) and 1 or 0,
}
