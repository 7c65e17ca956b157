-- A tenant's keys, the oldest first.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, most
-- returns  each as secret.lua shows it
-- errors   none
-- events   none; PUBLISH none
-- cost     O(most)
-- include: secret

local rows = {}
for _, prefix in ipairs(redis.call('ZRANGE', keys_key(ARGV[2]), 0, ARGV[3] - 1)) do
  if redis.call('EXISTS', key_key(prefix)) == 1 then
    rows[#rows + 1] = show_secret(prefix)
  end
end
return rows
