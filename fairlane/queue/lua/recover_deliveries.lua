-- Sends again what has failed of an endpoint's deliveries that were made since a time: the next LOOKED of them, the oldest first.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, endpoint, since (ms), ms and id of the entry after which to go on | twice ''
-- returns  '' or why nothing goes there: disabled; how many are sent again; `ms.id` of the entry after which to go on
--          (''; that was all). Nothing if the tenant has no such endpoint
-- errors   none
-- events   none; PUBLISH none
-- cost     O(LOOKED · log N)
-- include: delivery lineup
local LOOKED = 200
local tenant, endpoint, since, after_ms, after = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if redis.call('HGET', endpoint_key(endpoint), 'tenant') ~= tenant then
  return
end
local reason = barred(endpoint)
if reason then
  return {reason, 0, ''}
end
local key = failed_of_key(endpoint) -- all of them: other lists have an end
local first = redis.call('ZCOUNT', key, '-inf', '(' .. since)
if after ~= '' then
  local place = redis.call('ZRANK', key, after)
  first = math.max(first, place and place + 1 or redis.call('ZCOUNT', key, '-inf', '(' .. after_ms))
end
local entries, count = redis.call('ZRANGE', key, first, first + LOOKED - 1, 'WITHSCORES'), 0
for i = 1, #entries, 2 do
  if redis.call('HGET', delivery_key(entries[i]), 'state') == 'failed' then
    start(entries[i], endpoint)
    count = count + 1
  end
end
if count > 0 then
  forget_ills(endpoint) -- whoever asks for it has seen to the receiver
end
local go_on = ''
if #entries == 2 * LOOKED then
  go_on = int(tonumber(entries[#entries])) .. '.' .. entries[#entries - 1]
end
return {'', count, go_on}
