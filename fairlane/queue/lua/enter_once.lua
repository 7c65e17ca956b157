-- Signs a user in by a secret that can be used once.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', digest of the secret, address, digest of the sitting's token, ms that it lasts unused, ms that it lasts
--          at the most
-- returns  the user's name; nothing if the secret was used or is past its end, or the user was disabled since
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain sitting

local name, epoch, ends = unpack(redis.call('HMGET', once_key(ARGV[2]), 'user', 'epoch', 'ends'))
if not name then
  return
end
redis.call('DEL', once_key(ARGV[2]))
local role, disabled, current = unpack(redis.call('HMGET', user_key(name), 'role', 'disabled', 'epoch'))
if not role or disabled or (current or '0') ~= epoch or now >= tonumber(ends) then
  return
end
begin_sitting(ARGV[4], name, 'once', ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6]))
return name
