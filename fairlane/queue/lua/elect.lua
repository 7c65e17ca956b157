-- Gives a role to whoever asks first, for a time; who holds it prolongs it by asking again.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', role, who, ms
-- returns  1 if `who` holds the role now | 0
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain time

local role, who, ms = ARGV[2], ARGV[3], ARGV[4]
local till, holder = string.match(redis.call('GET', elected_key(role)) or '', '^(%d+) (.+)$')
if holder and holder ~= who and tonumber(till) > now then
  return 0
end
-- By `now` it ends, so that a virtual clock rules it too; the TTL only takes it away.
redis.call('SET', elected_key(role), int(now + ms) .. ' ' .. who, 'PX', 2 * ms)
return 1
