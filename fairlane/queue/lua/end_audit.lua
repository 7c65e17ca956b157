-- Adds to an entry of the audit what came of it: once.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', the entry's id, the outcome (JSON)
-- returns  1 if it was added | 0
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain

if #redis.call('XRANGE', audit_key, ARGV[2], ARGV[2]) == 0 then
  return 0
end
return redis.call('HSETNX', audit_ends_key, ARGV[2], ARGV[3])
