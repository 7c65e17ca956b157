-- The secret that signs the cookies of the admin page: made at first use.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', a new secret
-- returns  the secret
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)

redis.call('HSETNX', page_key, 'secret', ARGV[2])
return redis.call('HGET', page_key, 'secret')
