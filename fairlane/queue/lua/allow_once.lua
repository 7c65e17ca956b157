-- Lets a user sign in once without a password.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', name, digest of the secret, ms that it can be used
-- returns  1
-- errors   NOUSER name | USEROFF name
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain time

local role, disabled, epoch = unpack(redis.call('HMGET', user_key(ARGV[2]), 'role', 'disabled', 'epoch'))
if not role then
  return redis.error_reply('NOUSER ' .. ARGV[2])
end
if disabled then
  return redis.error_reply('USEROFF ' .. ARGV[2])
end
local key = once_key(ARGV[3])
redis.call('HSET', key, 'user', ARGV[2], 'epoch', epoch or '0', 'ends', int(now + ARGV[4]))
redis.call('PEXPIRE', key, ARGV[4])
return 1
