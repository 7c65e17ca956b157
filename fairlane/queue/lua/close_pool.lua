-- Closes a pool that nothing needs: without a tier it takes nothing in any more. Repeatable; there is no way back.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | ''
-- returns  nothing
-- errors   POOLINUSE <by what>
-- events   none; PUBLISH none
-- cost     O(1)
-- include: pool hooks

if (pool.backends or '') ~= '' then
  return redis.error_reply('POOLINUSE its backends are ' .. pool.backends)
end
for what, n in pairs({
  ['waiting jobs'] = tonumber(pool.waiting) or 0,
  ['running jobs'] = redis.call('ZCARD', leases_key),
  ['jobs that were moved away and are found by way of it'] = redis.call('ZCARD', moves_key),
  ['batches with jobs in it'] = redis.call('SCARD', batching_key),
  ['outcomes that webhooks are yet to tell of'] = untold(),
}) do
  if n > 0 then
    return redis.error_reply('POOLINUSE there are ' .. int(n) .. ' ' .. what)
  end
end
redis.call('HSET', pool_key, 'tiers', '')
