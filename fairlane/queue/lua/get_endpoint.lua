-- One webhook endpoint. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, id
-- returns  it as endpoint.lua shows it; nothing if the tenant has no such endpoint
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: endpoint
return own_endpoint(ARGV[2], ARGV[3]) and show_endpoint(ARGV[3])
