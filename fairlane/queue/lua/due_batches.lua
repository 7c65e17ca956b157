-- What of the batches is to be looked at now: of each tenant a few, in turn. Who was told has a while to say that it is done.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', how many of each, ms until it is said again
-- returns  {{codes of pools in which outcomes are to be collected}, {ids of batches}}
-- errors   none
-- events   none; PUBLISH none
-- cost     O(how many · log N), however many are due
-- include: drain batch
local most, again = tonumber(ARGV[2]), now + ARGV[3]
local pools = redis.call('ZRANGEBYSCORE', pools_due_key, '-inf', now, 'LIMIT', 0, most)
for _, code in ipairs(pools) do
  redis.call('ZADD', pools_due_key, again, code)
end

local tenants = redis.call('ZRANGEBYSCORE', batches_due_key, '-inf', now, 'LIMIT', 0, most)
for _, tenant in ipairs(tenants) do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', batches_handed_key(tenant), '-inf', now)) do -- lost
    redis.call('ZREM', batches_handed_key(tenant), id)
    earlier(batch_turns_key(tenant), id, now)
  end
end

local batches = {}
local function hand_over(tenant)
  local id, at = next_turn(tenant)
  if not id or at > now then
    return
  end
  redis.call('ZREM', batch_turns_key(tenant), id)
  if redis.call('EXISTS', batch_key(id)) == 1 then -- else it is past its retention
    redis.call('ZADD', batches_handed_key(tenant), again, id)
    batches[#batches + 1] = id
  end
end

for _ = 1, MOST_HANDED do
  for _, tenant in ipairs(tenants) do
    if #batches < most then
      hand_over(tenant)
    end
  end
end
for _, tenant in ipairs(tenants) do
  seat(tenant, true)
end
return {pools, batches}
