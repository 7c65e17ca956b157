-- Queues deliveries, due now, in their lanes. One that is there already is left as it is.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', then of each: id, tenant, lane, endpoint | '', event, what it is about, payload, and of an own hook
--          url, secret | '', headers (JSON) (else three times '')
-- returns  how many are new
-- errors   none
-- events   none; PUBLISH none
-- cost     O(deliveries · log N), and what the lists lose
-- include: delivery lineup
local added, lanes = 0, {}
for a = 2, #ARGV, 10 do
  local id, tenant, lane, endpoint, event, object, payload, url, secret, headers = unpack(ARGV, a, a + 9)
  if redis.call('EXISTS', delivery_key(id)) == 0 then
    if endpoint ~= '' then
      url = redis.call('HGET', endpoint_key(endpoint), 'url') or ''
    end
    redis.call('HSET', delivery_key(id), 'tenant', tenant, 'lane', lane, 'endpoint', endpoint, 'event', event,
      'object', object, 'payload', payload, 'url', url, 'secret', secret, 'headers', headers, 'created', int(now))
    start(id, lane)
    list(deliveries_key(tenant), id)
    list(deliveries_of_key(lane), id)
    list(all_deliveries_key, id)
    lanes[lane], added = lanes[lane] or event, added + 1
  end
end
for lane, event in pairs(lanes) do
  if event == 'webhook.test' then
    forget_ills(lane) -- somebody wants to know whether the receiver is well again
  else
    line_up(lane)
  end
end
return added
