-- `due` and `leased` contain the jobs of all priorities. The score of a job is its time, and LEVEL more for each level of
-- its priority. No time reaches LEVEL, so the time is the score modulo LEVEL, and each priority has a range of scores
-- that begins with its base. `levels` is a field of META: the priorities other than 0 that jobs may have, as digits,
-- the highest first.
local LEVEL = 400000000000000
