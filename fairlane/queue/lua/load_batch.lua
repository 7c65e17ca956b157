-- All that is known of one batch. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', id
-- returns  {now, how many of its jobs are open, 1 if its tenant is disabled | 0, its hash}
-- errors   none
-- events   none; PUBLISH none
-- cost     O(fields)
-- include: time
local id = ARGV[2]
local tenant = redis.call('HGET', batch_key(id), 'tenant')
local disabled = tenant and redis.call('HGET', tenant_key(tenant), 'disabled')
return {int(now), redis.call('HLEN', batch_open_key(id)), disabled and 1 or 0, redis.call('HGETALL', batch_key(id))}
