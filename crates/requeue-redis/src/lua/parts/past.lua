-- The past of a job: failures, deaths, end of the backoff, and first put. Most jobs have none.
local NO_FAILURES = '\0'

-- Reads the past of a job. Without one, the first put is the creation.
local function past_of(id, created)
  local past = { attempts = 0, deaths = 0, floor = 0, first = created, due = 0, updated = 0, failures = NO_FAILURES }
  local text = call('HGET', PAST, id)
  -- A shorter one is damaged.
  if text and #text > 32 then
    past.attempts, past.deaths, past.floor, past.first, past.due, past.updated = cut('>I4I4I6I6I6I6', text)
    past.failures = string.sub(text, 33)
  end
  return past
end

local function keep_past(id, past)
  local numbers = pack('>I4I4I6I6I6I6', past.attempts, past.deaths, past.floor, past.first, past.due, past.updated)
  call('HSET', PAST, id, numbers .. past.failures)
end
