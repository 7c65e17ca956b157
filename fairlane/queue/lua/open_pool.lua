-- Writes the policy of a new pool; what is there already stays. One that was closed is not opened again.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', then name, value of each setting
-- returns  the pool's hash, names and values, as it stands now
-- errors   CLOSED
-- events   none; PUBLISH none
-- cost     O(1)
-- include: pool

if pool.tiers == '' then
  return redis.error_reply('CLOSED')
end
for a = 2, #ARGV, 2 do
  redis.call('HSETNX', pool_key, ARGV[a], ARGV[a + 1])
end
redis.call('HSETNX', pool_key, 'about', HASH_TABLE)
return redis.call('HGETALL', pool_key)
