-- What of the batches is to be looked at now: it is said again after a while, unless somebody has said otherwise.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', how many, ms until it is said again
-- returns  ids of batches, and `pool:<code>` where outcomes are to be collected
-- errors   none
-- events   none; PUBLISH none
-- cost     O(how many · log N)
-- include: drain time
local members = redis.call('ZRANGEBYSCORE', batches_due_key, '-inf', now, 'LIMIT', 0, ARGV[2])
for _, member in ipairs(members) do
  redis.call('ZADD', batches_due_key, now + ARGV[3], member)
end
return members
