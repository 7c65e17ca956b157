-- Ends a key at once.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', prefix
-- returns  the key as secret.lua shows it
-- errors   NOKEY prefix
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain secret

local key = key_key(ARGV[2])
if redis.call('EXISTS', key) == 0 then
  return redis.error_reply('NOKEY ' .. ARGV[2])
end
if redis.call('HEXISTS', key, 'revoked') == 0 then
  end_secret(key, 'revoked', now)
end
return show_secret(ARGV[2])
