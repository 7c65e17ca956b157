-- Writes down what is about to be done on the admin page. The oldest entries go.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', most entries that are kept, then name, value of each field
-- returns  the entry's id
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain time

local CLEARED = 10 -- old entries at a time
local id = redis.call('XADD', audit_key, '*', 'at', int(now), unpack(ARGV, 3))
local over = math.min(CLEARED, redis.call('XLEN', audit_key) - ARGV[2])
if over > 0 then
  for _, entry in ipairs(redis.call('XRANGE', audit_key, '-', '+', 'COUNT', over)) do
    redis.call('XDEL', audit_key, entry[1])
    redis.call('HDEL', audit_ends_key, entry[1])
  end
end
return id
