-- What a tenant's rates in this pool still allow.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', tenant
-- returns  its limits ('' if none were set), jobs that wait, µs that its requests are ahead of their rate, and its tokens
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: tenant

local t = tenant_of(ARGV[2])
local limits = redis.call('HGET', tenant_key(t.name), 'limits')
local function ahead(at)
  return int(math.max(0, (at or 0) - now * 1000))
end
return {limits or '', t.waiting, ahead(t.requests_at), ahead(t.tokens_at)}
