-- The next jobs of an index of which somebody looks for some. Reads only. An entry's place is its score and its name, so that a
-- page goes on at the right one whatever came or went meanwhile.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', due | done | dead, 'up' | 'down', score and name of the last one looked at | '' '', most to look at,
--          most to find, then as lib/match.lua has it
-- returns  looked at, score and name of the last one looked at | '' '' if nothing follows, ids…
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log² N + most to look at)
-- include: match

local KEYS_OF = {due = due_key, done = done_key, dead = dead_key}
local key, up, score, name = KEYS_OF[ARGV[2]], ARGV[3] == 'up', ARGV[4], ARGV[5]
local looks, most = tonumber(ARGV[6]), tonumber(ARGV[7])
read_match(8)

-- How many entries come before this place, and whether it is still taken.
local function rank_of()
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZRANGE', key, middle, middle)[1] < name then
      low = middle + 1
    else
      high = middle
    end
  end
  return low, redis.call('ZRANGE', key, low, low)[1] == name
end

local start, stop, step = 0, looks - 1, 1
if not up then
  stop = redis.call('ZCARD', key) - 1
end
if score ~= '' then
  local rank, taken = rank_of()
  start = taken and rank + 1 or rank
  stop = up and start + looks - 1 or rank - 1
end
if not up then
  start, step = math.max(0, stop - looks + 1), -1
end
local entries = stop >= 0 and redis.call('ZRANGE', key, start, stop, 'WITHSCORES') or {}
local found, looked, last = {0, '', ''}, 0, nil
for i = up and 1 or #entries - 1, up and #entries or 1, 2 * step do
  looked, last = looked + 1, i
  if matches(entries[i]) then
    found[#found + 1] = entries[i]
  end
  if #found == most + 3 then
    break
  end
end
found[1] = looked
if looked == looks or #found == most + 3 then
  found[2], found[3] = entries[last + 1], entries[last]
end
return found
