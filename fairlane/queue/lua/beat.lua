-- A dispatcher says that it lives, and how it is, and hears whether it was told to drain. Those that fell silent are forgotten,
-- a few at a time.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', dispatcher, info (JSON), ms after which one counts as silent
-- returns  1 if it is to drain, else 0
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log D): D dispatchers
-- include: drain time

local FORGOTTEN_AT_A_TIME = 16
redis.call('ZADD', beats_key, now, ARGV[2])
redis.call('HSET', dispatchers_key, ARGV[2], ARGV[3])
local silent = redis.call('ZRANGEBYSCORE', beats_key, '-inf', now - ARGV[4], 'LIMIT', 0, FORGOTTEN_AT_A_TIME)
for _, gone in ipairs(silent) do
  redis.call('ZREM', beats_key, gone)
  redis.call('HDEL', dispatchers_key, gone)
  redis.call('ZREM', drains_key, gone)
end
return redis.call('ZSCORE', drains_key, ARGV[2]) and 1 or 0
