-- Says whether a tenant's endpoints want events of its jobs in this pool. A copy that is not newer changes nothing.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', tenant, 1 | '', version
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: drain tenant hooks

local t, version = tenant_of(ARGV[2]), tonumber(ARGV[4])
if version <= (tonumber(redis.call('HGET', tenant_key(t.name), 'hooks_version')) or 0) then
  return
end
if ARGV[3] == '1' then
  redis.call('HSET', tenant_key(t.name), 'hooks', 1, 'hooks_version', int(version))
  join_hooks()
elseif t.hooks then
  redis.call('HDEL', tenant_key(t.name), 'hooks')
  redis.call('HSET', tenant_key(t.name), 'hooks_version', int(version))
  t.hooks = false
  count(t, 0, 0)
  write_tenants() -- it may have nothing left to be remembered
end
