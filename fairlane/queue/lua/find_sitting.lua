-- Whose sitting this is; notes that it was used, at most once a minute.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', digest of its token, the address that it is used from ('': it is not used now),
--          ms that it lasts unused
-- returns  nothing if there is none (any more) | user, role, tenants ('' for all), how it began, and when (ms)
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain sitting

local NOTED_MS = 60000
local key = sitting_key(ARGV[2])
local name, by, epoch, since, used, ends = unpack(redis.call(
  'HMGET', key, 'user', 'by', 'epoch', 'since', 'used', 'ends'))
if not name then
  return
end
local role, tenants, disabled, current = unpack(redis.call(
  'HMGET', user_key(name), 'role', 'tenants', 'disabled', 'epoch'))
local idle = tonumber(ARGV[4])
if not role or disabled or (current or '0') ~= epoch or now >= tonumber(ends) or now - used >= idle then
  redis.call('DEL', key)
  return
end
if ARGV[3] ~= '' and now - used >= NOTED_MS then
  redis.call('HSET', key, 'used', now)
  redis.call('PEXPIRE', key, int(math.min(idle, ends - now)))
  redis.call('HSET', user_key(name), 'seen', now, 'seen_from', ARGV[3])
end
return {name, role, tenants or '', by, since}
