-- Counts a try to sign in, for the name that was typed and for the address it comes from, before the password is looked
-- at: so many at once cannot all slip through. Beyond the first few, each try makes the next one wait twice as long.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', name, digest of the name, origin of the address, then for the name and for the address: tries that are free, ms that
--          the first wait takes, the most that one takes, ms after which all tries are forgotten
-- returns  ms to wait, if this try is refused | 0, the hash of the password ('' if there is none or the user is disabled),
--          '1' if there is such a user | '0'
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain time

local counted = {{tries_key('name', ARGV[3]), 5}, {tries_key('from', ARGV[4]), 9}}
local wait = 0
for _, one in ipairs(counted) do
  wait = math.max(wait, (tonumber(redis.call('HGET', one[1], 'until')) or 0) - now)
end
if wait > 0 then
  return {wait}
end
for _, one in ipairs(counted) do
  local key, free, first, most, kept = one[1], unpack(ARGV, one[2], one[2] + 3)
  local over = redis.call('HINCRBY', key, 'n', 1) - free
  if over >= 0 then
    redis.call('HSET', key, 'until', int(now + math.min(tonumber(most), first * 2 ^ math.min(over, 30))))
  end
  redis.call('PEXPIRE', key, kept)
end
local password, disabled, role = unpack(redis.call('HMGET', user_key(ARGV[2]), 'password', 'disabled', 'role'))
return {0, not disabled and password or '', role and '1' or '0'}
