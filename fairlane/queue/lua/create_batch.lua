-- Writes a new batch, to be looked at now; forgets the tenant's that are long past. With an idempotency key it may be repeated.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, random part of its id, ms until it expires, ms that a tenant's list goes back,
--          digest of its idempotency key | '', then names and values of its hash
-- returns  its id; of a key that was used before, that batch's
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N), and what the lists lose
-- include: batch
local tenant, id = ARGV[2], 'batch_' .. int(now) .. ARGV[3]
local idem = ARGV[6] ~= '' and idem_key(tenant, ARGV[6])
local known = idem and redis.call('GET', idem)
if known then
  return known
end
redis.call('HSET', batch_key(id), 'tenant', tenant, 'status', 'validating', 'created', int(now),
  'expires', int(now + ARGV[4]), unpack(ARGV, 7))
redis.call('ZREMRANGEBYLEX', batches_key(tenant), '-', '(batch_' .. int(now - ARGV[5]))
redis.call('ZADD', batches_key(tenant), 0, id)
redis.call('ZREMRANGEBYLEX', all_batches_key, '-', '(batch_' .. int(now - ARGV[5]))
redis.call('ZADD', all_batches_key, 0, id)
look_at(id, 0)
if idem then
  redis.call('SET', idem, id, 'PX', ARGV[5])
end
return id
