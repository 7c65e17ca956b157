-- Tells a dispatcher to drain: it hears of it with its next beat (beat.lua). May be repeated.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', dispatcher, ms after which one counts as silent
-- returns  1; 0 if it was not heard lately
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log D): D dispatchers
-- include: drain time

local heard = redis.call('ZSCORE', beats_key, ARGV[2])
if not heard or tonumber(heard) <= now - ARGV[3] then
  return 0
end
redis.call('ZADD', drains_key, 'NX', now, ARGV[2])
return 1
