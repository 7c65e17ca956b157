-- Puts another signing secret in the place of one, which is in force for the overlap yet; one older than that is not.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, endpoint's id | 'default', the new secret, overlap in ms
-- returns  nothing
-- errors   NOENDPOINT id
-- events   none; PUBLISH none
-- cost     O(1)
-- include: endpoint time

local key = signer(ARGV[2], ARGV[3])
if not key then
  return no_endpoint(ARGV[3])
end
local old = redis.call('HGET', key, 'secret')
if old == ARGV[4] then -- repeated after a lost reply
  return
end
redis.call('HSET', key, 'secret', ARGV[4])
if old and tonumber(ARGV[5]) > 0 then
  redis.call('HSET', key, 'old_secret', old, 'old_until', int(now + ARGV[5]))
else
  redis.call('HDEL', key, 'old_secret', 'old_until')
end
