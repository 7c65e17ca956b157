-- Forgets contents that were deleted, and belong to no file.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', content's name, …
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log U) for each
for a = 2, #ARGV do
  redis.call('ZREM', uploads_key, ARGV[a])
  redis.call('ZREM', discarded_key, ARGV[a])
end
