-- The event of a batch that has ended was fanned out.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', the batch's id
-- returns  1; 0 if it was before
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N)
return redis.call('ZREM', batch_events_key, ARGV[2])
