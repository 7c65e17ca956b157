-- Makes an API key of a registered tenant.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', prefix, digest of the secret, tenant, ms that it lasts | '', most that a tenant may have,
--          then name, value of its other fields
-- returns  the key as secret.lua shows it; nothing if another has this prefix
-- errors   NOTENANT tenant | KEYSFULL most
-- events   none; PUBLISH none
-- cost     O(log K)
-- include: secret

local CLEARED = 20 -- entries of keys that are gone
local prefix, tenant = ARGV[2], ARGV[4]
if redis.call('EXISTS', tenant_key(tenant)) == 0 then
  return redis.error_reply('NOTENANT ' .. tenant)
end
for _, old in ipairs(redis.call('ZRANGE', keys_key(tenant), 0, CLEARED - 1)) do
  if redis.call('EXISTS', key_key(old)) == 0 then
    redis.call('ZREM', keys_key(tenant), old)
  end
end
if redis.call('ZCARD', keys_key(tenant)) >= tonumber(ARGV[6]) then
  return redis.error_reply('KEYSFULL ' .. ARGV[6])
end
if add_secret(prefix, ARGV[3], tenant, tonumber(ARGV[5]), {unpack(ARGV, 7)}) then
  return show_secret(prefix)
end
