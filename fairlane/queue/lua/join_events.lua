-- From now on the pool's events are kept until they are collected for the batches.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', batch
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain
redis.call('SADD', batching_key, ARGV[2])
redis.pcall('XGROUP', 'CREATE', events_key, 'batches', '$', 'MKSTREAM') -- it may be there
