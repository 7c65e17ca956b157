-- The open jobs of a batch, and the lines that they are. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', id
-- returns  job, "line bytes", …: 2,000 at the most
-- errors   none
-- events   none; PUBLISH none
-- cost     O(open jobs)
return redis.call('HGETALL', batch_open_key(ARGV[2]))
