-- Writes what the observer has found about the whole pool: the boost's γ, and what it shows of how it came to it.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', γ per second | '' (none: the policy pins it), what was seen (JSON)
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain

redis.call('HSET', pool_key, 'gamma_now', ARGV[2], 'steer', ARGV[3])
