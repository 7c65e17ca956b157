-- Gives a pool its code, once. This one works on the account's slot.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', pool name, proposed code
-- returns  the pool's code; '' if the proposed one is taken
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
local name, proposed = ARGV[2], ARGV[3]
local code = redis.call('HGET', pools_key, name)
if code then
  return code
end
if redis.call('HSETNX', codes_key, proposed, name) == 0 then
  return ''
end
redis.call('HSET', pools_key, name, proposed)
return proposed
