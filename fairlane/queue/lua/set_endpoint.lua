-- Changes a webhook endpoint. What failed before is forgotten when it gets another url or is enabled.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, id, then name, value of each field: url, events, description, headers, enabled
-- returns  it as endpoint.lua shows it; whether outcomes of jobs are wanted, and the version of that
-- errors   NOENDPOINT id | ENDPOINTTHERE id
-- events   none; PUBLISH none
-- cost     O(endpoints of the tenant)
-- include: drain endpoint lineup

local tenant, id = ARGV[2], ARGV[3]
local key = own_endpoint(tenant, id)
if not key then
  return no_endpoint(id)
end
local was, url, events = unpack(redis.call('HMGET', key, 'enabled', 'url', 'events'))
local to = {}
for a = 4, #ARGV, 2 do
  to[ARGV[a]] = ARGV[a + 1]
end
if to.url or to.events then
  local other = twin(tenant, id, to.url or url, to.events or events)
  if other then
    return redis.error_reply('ENDPOINTTHERE ' .. other)
  end
end
for name, value in pairs(to) do
  redis.call('HSET', key, name, value)
end
if to.enabled == '0' and was == '1' then
  redis.call('HSET', key, 'reason', 'asked')
end
if (to.enabled == '1' and was == '0') or (to.url and to.url ~= url) then
  redis.call('HDEL', key, 'failing_since')
end
if to.enabled == '1' or (to.url and to.url ~= url) then
  forget_ills(id)
end
if to.enabled == '1' then
  redis.call('HDEL', key, 'reason')
end
return {show_endpoint(id), note_hooks(tenant)}
