-- Forgets a webhook endpoint. What waits to be sent to it fails when it comes up.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, id
-- returns  whether outcomes of jobs are wanted, and the version of that
-- errors   NOENDPOINT id
-- events   none; PUBLISH none
-- cost     O(endpoints of the tenant)
-- include: drain endpoint

local tenant, id = ARGV[2], ARGV[3]
local key = own_endpoint(tenant, id)
if not key then
  return no_endpoint(id)
end
redis.call('DEL', key)
redis.call('ZREM', endpoints_key(tenant), id)
redis.call('ZREM', all_endpoints_key, id)
return {note_hooks(tenant)}
