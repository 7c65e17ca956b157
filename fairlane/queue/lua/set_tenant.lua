-- Registers a tenant, or changes what is known of one. This one works on the account's slot.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, 'new' | 'known', '1' if its limits change | '0', then name, value of each field ('' takes it away)
-- returns  its hash, names and values: as it was (a new one's without these fields), and as it stands now
-- errors   TENANTTHERE tenant | NOTENANT tenant
-- events   none; PUBLISH none
-- cost     O(1)
-- include: time

local name, key = ARGV[2], tenant_key(ARGV[2])
local known = redis.call('EXISTS', key) == 1
if known and ARGV[3] == 'new' then
  return redis.error_reply('TENANTTHERE ' .. name)
end
if not known and ARGV[3] == 'known' then
  return redis.error_reply('NOTENANT ' .. name)
end
if not known then
  redis.call('HSET', key, 'created', now, 'version', 0)
  redis.call('ZADD', tenants_key, 0, name)
end
local was = redis.call('HGETALL', key)
for a = 5, #ARGV, 2 do
  if ARGV[a + 1] == '' then
    redis.call('HDEL', key, ARGV[a])
  else
    redis.call('HSET', key, ARGV[a], ARGV[a + 1])
  end
end
redis.call('HINCRBY', key, 'version', ARGV[4])
return {was, redis.call('HGETALL', key)}
