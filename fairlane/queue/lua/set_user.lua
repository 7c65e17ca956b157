-- Makes a user of the admin page, or changes one. This one works on the account's slot.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', name, 'new' | 'known', '1' if this ends all sittings of the user | '0', then name, value of each field
--          ('' takes it away)
-- returns  the user as sitting.lua shows it
-- errors   USERTHERE name | NOUSER name
-- events   none; PUBLISH none
-- cost     O(log U)
-- include: sitting

local name, key = ARGV[2], user_key(ARGV[2])
local known = redis.call('EXISTS', key) == 1
if known and ARGV[3] == 'new' then
  return redis.error_reply('USERTHERE ' .. name)
end
if not known and ARGV[3] == 'known' then
  return redis.error_reply('NOUSER ' .. name)
end
if not known then
  redis.call('HSET', key, 'created', now)
  redis.call('ZADD', users_key, 0, name)
end
for a = 5, #ARGV, 2 do
  if ARGV[a + 1] == '' then
    redis.call('HDEL', key, ARGV[a])
  else
    redis.call('HSET', key, ARGV[a], ARGV[a + 1])
  end
end
redis.call('HINCRBY', key, 'epoch', ARGV[4])
return show_user(name)
