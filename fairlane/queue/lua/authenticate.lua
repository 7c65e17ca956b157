-- What a secret's prefix leads to; notes when the secret was used, at most once a minute.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', prefix, digest of the secret, an end user's name | ''
-- returns  nothing if there is no such key | its digest, state, tenant and role; tiers and pools of the key, then of its
--          tenant ('' for all); '1' if the end user's name is a registered tenant's | '0'
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain secret

local NOTED_MS = 60000
local key = key_key(ARGV[2])
local digest, tenant, role, tiers, pools, revoked, expires, used = unpack(redis.call(
  'HMGET', key, 'digest', 'tenant', 'role', 'tiers', 'pools', 'revoked', 'expires', 'used'))
if not digest then
  return
end
local its_tiers, its_pools, disabled = unpack(redis.call('HMGET', tenant_key(tenant), 'tiers', 'pools', 'disabled'))
local state = disabled and 'disabled' or secret_state(revoked, expires)
if state == 'active' and digest == ARGV[3] and now - (tonumber(used) or 0) >= NOTED_MS then
  redis.call('HSET', key, 'used', int(now))
end
local taken = ARGV[4] ~= '' and redis.call('EXISTS', tenant_key(ARGV[4])) or 0
return {digest, state, tenant, role, tiers or '', pools or '', its_tiers or '', its_pools or '', tostring(taken)}
