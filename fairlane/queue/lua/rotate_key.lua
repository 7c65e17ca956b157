-- Makes a key that takes another's place, and is like it; the old one lasts for the overlap yet.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', old prefix, new prefix, digest of the new secret, overlap in ms
-- returns  the new key as secret.lua shows it; nothing if another has the new prefix
-- errors   NOKEY prefix | KEYSTATE state
-- events   none; PUBLISH none
-- cost     O(log K)
-- include: secret

local key = key_key(ARGV[2])
local tenant, role, tiers, pools, label, created, expires, revoked, following = unpack(redis.call(
  'HMGET', key, 'tenant', 'role', 'tiers', 'pools', 'label', 'created', 'expires', 'revoked', 'next'))
if not tenant then
  return redis.error_reply('NOKEY ' .. ARGV[2])
end
if following == ARGV[3] then -- repeated after a lost reply
  return show_secret(following)
end
local state = secret_state(revoked, expires)
if following or state ~= 'active' then
  return redis.error_reply('KEYSTATE ' .. (following and 'rotated to ' .. following or state))
end
local fields = {'role', role}
for name, value in pairs({tiers = tiers, pools = pools, label = label}) do
  if value then
    fields[#fields + 1], fields[#fields + 2] = name, value
  end
end
if add_secret(ARGV[3], ARGV[4], tenant, expires and expires - created, fields) then
  redis.call('HSET', key, 'next', ARGV[3])
  end_secret(key, 'expires', math.min(tonumber(expires) or math.huge, now + ARGV[5]))
  return show_secret(ARGV[3])
end
