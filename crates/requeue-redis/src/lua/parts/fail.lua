local KEPT_ATTEMPTS = 5

-- Counts a failed attempt, and keeps the latest ones. If the lease expired, `problem` is nil.
local function fail(past, worker, began, ended, problem)
  past.attempts = math.min(past.attempts + 1, 4294967295)
  local count, failures = string.byte(past.failures), string.sub(past.failures, 2)
  if count >= KEPT_ATTEMPTS then
    local whole, _, _, _, length, after = pcall(cut, '>I6I6Bc0H', failures)
    if whole and count == KEPT_ATTEMPTS then
      failures = string.sub(failures, after + (length > 0 and length - 1 or 0))
      count = count - 1
    else
      -- They are damaged.
      count, failures = 0, ''
    end
  end
  local text = problem and pack('>H', #problem + 1) .. problem or '\0\0'
  past.failures = string.char(count + 1) .. failures .. pack('>I6I6Bc0', began, ended, #worker, worker) .. text
end
