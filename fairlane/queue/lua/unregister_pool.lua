-- Forgets a pool's name and its code, for good. This one works on the account's slot.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', pool name, its code
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N)
local name, code = ARGV[2], ARGV[3]
if redis.call('HGET', pools_key, name) == code then
  redis.call('HDEL', pools_key, name)
end
redis.call('HDEL', codes_key, code)
redis.call('ZREM', pools_due_key, code)
