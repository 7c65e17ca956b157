-- Gives a role up, so that another can take it at once.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', role, who
-- returns  1 if `who` had it | 0
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)

local role, who = ARGV[2], ARGV[3]
local holder = string.match(redis.call('GET', elected_key(role)) or '', '^%d+ (.+)$')
if holder ~= who then
  return 0
end
return redis.call('DEL', elected_key(role))
