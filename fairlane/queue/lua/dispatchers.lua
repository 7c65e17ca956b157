-- The dispatchers that were heard lately. Reads only.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', ms after which one counts as silent, most of them
-- returns  3 values a dispatcher: name, when it was last heard (ms), info (JSON)
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log D + most)
-- include: time

local heard = redis.call('ZRANGEBYSCORE', beats_key, '(' .. int(now - ARGV[2]), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
local reply = {}
for i = 1, #heard, 2 do
  reply[#reply + 1], reply[#reply + 2] = heard[i], heard[i + 1]
  reply[#reply + 1] = redis.call('HGET', dispatchers_key, heard[i]) or '{}'
end
return reply
