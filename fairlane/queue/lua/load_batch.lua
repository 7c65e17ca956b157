-- All that is known of one batch. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', id
-- returns  {now, how many of its jobs are open, its hash}
-- errors   none
-- events   none; PUBLISH none
-- cost     O(fields)
-- include: time
local id = ARGV[2]
return {int(now), redis.call('HLEN', batch_open_key(id)), redis.call('HGETALL', batch_key(id))}
