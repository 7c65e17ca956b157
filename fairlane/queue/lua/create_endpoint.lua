-- Makes a webhook endpoint of a tenant; one that is equal in all is there once only, so that this may be repeated.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, random part of its id, most that a tenant may have, the secret that was asked for | '', a new one,
--          url, events, description, headers
-- returns  its secret; it as endpoint.lua shows it; whether outcomes of jobs are wanted, and the version of that
-- errors   ENDPOINTTHERE id | ENDPOINTSFULL most
-- events   none; PUBLISH none
-- cost     O(most)
-- include: endpoint time

local tenant, asked, url, events = ARGV[2], ARGV[5], ARGV[7], ARGV[8]
local id = twin(tenant, nil, url, events)
if id then
  local secret, enabled, description, headers = unpack(redis.call(
    'HMGET', endpoint_key(id), 'secret', 'enabled', 'description', 'headers'))
  if enabled ~= '1' or description ~= ARGV[9] or headers ~= ARGV[10] or (asked ~= '' and asked ~= secret) then
    return redis.error_reply('ENDPOINTTHERE ' .. id)
  end
  return {secret, show_endpoint(id), note_hooks(tenant)}
end
if redis.call('ZCARD', endpoints_key(tenant)) >= tonumber(ARGV[4]) then
  return redis.error_reply('ENDPOINTSFULL ' .. ARGV[4])
end
id = 'whe_' .. int(now) .. ARGV[3]
local secret = asked ~= '' and asked or ARGV[6]
redis.call('HSET', endpoint_key(id), 'tenant', tenant, 'url', url, 'events', events, 'description', ARGV[9],
  'headers', ARGV[10], 'secret', secret, 'enabled', '1', 'created', int(now))
redis.call('ZADD', endpoints_key(tenant), 0, id)
redis.call('ZADD', all_endpoints_key, 0, id)
return {secret, show_endpoint(id), note_hooks(tenant)}
