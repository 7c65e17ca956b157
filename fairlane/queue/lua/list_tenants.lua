-- Registered tenants by name, a page of them.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', the name after which to go on | '', most
-- returns  a row each: name, its hash's names and values
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log T + most)

local first = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local rows = {}
for i, name in ipairs(redis.call('ZRANGEBYLEX', tenants_key, first, '+', 'LIMIT', 0, ARGV[3])) do
  rows[i] = {name, redis.call('HGETALL', tenant_key(name))}
end
return rows
