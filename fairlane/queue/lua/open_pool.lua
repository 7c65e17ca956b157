-- Writes the policy of a new pool; what is there already stays.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', then name, value of each setting
-- returns  the pool's hash, names and values, as it stands now
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: hash
for a = 2, #ARGV, 2 do
  redis.call('HSETNX', pool_key, ARGV[a], ARGV[a + 1])
end
redis.call('HSETNX', pool_key, 'about', HASH_TABLE)
return redis.call('HGETALL', pool_key)
