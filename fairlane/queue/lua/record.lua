-- Adds what a round of steering saw to the pool's history, in each of its steps, and writes who was served of late.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', the point's words, who was served (JSON), how long that holds (ms), then step (s), points kept of it, …
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(S · (W + log N)): steps, words of a point, points
-- include: drain time

-- A word is a name, how two of them make one (+ adds, ^ keeps the larger, = the newer), and a number.
local function merged(old, new)
  local names, numbers = {}, {}
  for word, how, number in string.gmatch(old .. ' ' .. new, '([^%s+^=]+)([+^=])(%S+)') do
    local name, n = word .. how, tonumber(number)
    local known = numbers[name]
    if not known then
      names[#names + 1] = name
    end
    numbers[name] = not known and n or how == '+' and known + n or how == '^' and math.max(known, n) or n
  end
  for i, name in ipairs(names) do
    names[i] = name .. string.format('%.10g', numbers[name])
  end
  return table.concat(names, ' ')
end

redis.call('SET', served_key, ARGV[3], 'PX', ARGV[4])
for a = 5, #ARGV, 2 do
  local key, at = trend_key(ARGV[a]), now - now % (ARGV[a] * 1000)
  local old = redis.call('ZRANGEBYSCORE', key, at, at)[1]
  if old then
    redis.call('ZREM', key, old)
  end
  redis.call('ZADD', key, at, int(at) .. ' ' .. merged(old and string.match(old, ' (.*)') or '', ARGV[2]))
  redis.call('ZREMRANGEBYRANK', key, 0, -1 - ARGV[a + 1])
end
