-- All webhook endpoints of a tenant, the oldest first. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant
-- returns  each as endpoint.lua shows it
-- errors   none
-- events   none; PUBLISH none
-- cost     O(endpoints of the tenant)
-- include: endpoint

local rows = {}
for i, id in ipairs(endpoints_of(ARGV[2])) do
  rows[i] = show_endpoint(id)
end
return rows
