-- Signs a user in whose password was found right, and forgets the tries that this took.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', name, digest of the name, address, its origin, the hash of the password that was right, digest of the
--          sitting's token, ms that it lasts unused, ms that it lasts at the most
-- returns  1; 0 if the password was changed meanwhile or the user disabled
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain sitting

local name, from = ARGV[2], tries_key('from', ARGV[5])
local password, disabled = unpack(redis.call('HMGET', user_key(name), 'password', 'disabled'))
if disabled or password ~= ARGV[6] then
  return 0
end
redis.call('DEL', tries_key('name', ARGV[3]))
if (tonumber(redis.call('HGET', from, 'n')) or 0) > 0 then
  redis.call('HINCRBY', from, 'n', -1)
  redis.call('HDEL', from, 'until')
end
begin_sitting(ARGV[7], name, 'password', ARGV[4], tonumber(ARGV[8]), tonumber(ARGV[9]))
return 1
