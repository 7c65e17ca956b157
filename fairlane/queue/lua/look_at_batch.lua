-- A step of a batch is done: the next is due in `ms` or, if that was said meanwhile, earlier. Or never.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', batch's id, ms | '': never
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N)
-- include: drain batch
local id = ARGV[2]
local tenant = redis.call('HGET', batch_key(id), 'tenant')
if not tenant then -- past its retention: due_batches forgets it
  return
end
redis.call('ZREM', batches_handed_key(tenant), id)
if ARGV[3] == '' then
  redis.call('ZREM', batch_turns_key(tenant), id)
  seat(tenant)
else
  look_at(id, ARGV[3])
end
