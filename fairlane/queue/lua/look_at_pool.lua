-- Says when outcomes of batches are to be collected in a pool: in `ms` or, if it was said already, earlier. Or never again.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', pool's code, ms | '': never
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N)
-- include: drain batch
if ARGV[3] == '' then
  redis.call('ZREM', pools_due_key, ARGV[2])
else
  earlier(pools_due_key, ARGV[2], now + ARGV[3])
end
