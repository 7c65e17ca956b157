-- How many deliveries are due, are to be sent at all, and came to what. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | ''
-- returns  due in the first LANES lanes that could give out some, pending, and the totals: delivered, failed, retried
-- errors   none
-- events   none; PUBLISH none
-- cost     O(LANES · log N)
-- include: time
local LANES = 500
local due = 0
for _, lane in ipairs(redis.call('ZRANGEBYSCORE', lanes_due_key, '-inf', now, 'LIMIT', 0, LANES)) do
  due = due + redis.call('ZCOUNT', lane_due_key(lane), '-inf', now)
end
local counts = {due, redis.call('ZCARD', delivery_ends_key)}
for i, count in ipairs(redis.call('HMGET', hook_counts_key, 'delivered', 'failed', 'retried')) do
  counts[2 + i] = tonumber(count or 0)
end
return counts
