-- Signs a viewer of the admin page out.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', digest of the sitting's token
-- returns  1 if there was such a sitting | 0
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain

return redis.call('DEL', sitting_key(ARGV[2]))
