-- Says when a batch, or `pool:<code>`, is to be looked at: in `ms` or, if it was to be already, earlier. Or never again.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', batch's id | pool:<code>, ms | '': never
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N)
-- include: drain batch
if ARGV[3] == '' then
  redis.call('ZREM', batches_due_key, ARGV[2])
else
  look_at(ARGV[2], tonumber(ARGV[3]))
end
