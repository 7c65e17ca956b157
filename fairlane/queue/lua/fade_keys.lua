-- Lets keys of a pool that was closed expire. Whoever does not know yet writes on into what goes.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', ms, then whole keys
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1) a key
-- include: pool

if pool.tiers == '' then
  for a = 3, #ARGV do
    redis.call('PEXPIRE', ARGV[a], ARGV[2])
  end
end
