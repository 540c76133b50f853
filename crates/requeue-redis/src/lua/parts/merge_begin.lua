-- Each function that a script defines makes every call slower. Most puts create jobs, and need none of these.
local MAX_DELAY = 316224000000
-- The latest generation of the kind. It rises with each put that has an effect.
local generation

-- Returns `merge`, `add_level` and `need_level`.
local function load_merge()
