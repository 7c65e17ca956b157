-- The dispatchers that were heard lately. Reads only.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', ms after which one counts as silent, most of them
-- returns  now, then 4 values a dispatcher: name, when it was last heard (ms), info (JSON), '1' if it was told to drain | ''
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log D + most)
-- include: time

local heard = redis.call('ZRANGEBYSCORE', beats_key, '(' .. int(now - ARGV[2]), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
local reply = {int(now)}
for i = 1, #heard, 2 do
  reply[#reply + 1], reply[#reply + 2] = heard[i], heard[i + 1]
  reply[#reply + 1] = redis.call('HGET', dispatchers_key, heard[i]) or '{}'
  reply[#reply + 1] = redis.call('ZSCORE', drains_key, heard[i]) and '1' or ''
end
return reply
