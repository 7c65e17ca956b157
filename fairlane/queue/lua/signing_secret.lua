-- The secret that signs what goes to an endpoint, or that of a tenant's hooks which bring none: made at first use.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, endpoint's id | 'default', a new secret
-- returns  the secret
-- errors   NOENDPOINT id
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain endpoint

local key = signer(ARGV[2], ARGV[3])
if not key then
  return no_endpoint(ARGV[3])
end
local known = redis.call('HGET', key, 'secret')
if not known then
  redis.call('HSET', key, 'secret', ARGV[4])
end
return known or ARGV[4]
