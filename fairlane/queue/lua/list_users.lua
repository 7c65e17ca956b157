-- Users of the admin page by name, a page of them.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', the name after which to go on | '', most
-- returns  each as sitting.lua shows it
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log U + most)
-- include: sitting

local first = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local rows = {}
for i, name in ipairs(redis.call('ZRANGEBYLEX', users_key, first, '+', 'LIMIT', 0, ARGV[3])) do
  rows[i] = show_user(name)
end
return rows
