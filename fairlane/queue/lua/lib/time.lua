-- now: ms since the epoch. Redis's own clock, unless the caller brings a virtual one (tests, simulator).
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Lua's own number-to-string keeps 14 digits; a virtual time or a seq may have more. (A number that is an argument of
-- redis.call needs no such care.)
local function int(x)
  return string.format('%.0f', x)
end
