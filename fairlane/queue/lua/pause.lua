-- Pauses or resumes the pool, a tier or a tenant. Work that runs goes on.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', pool | tier | tenant, its name | '', 1 pause | 0 resume
-- returns  1 if that changed anything
-- errors   none
-- events   none; PUBLISH wake
-- cost     O(K) for pool and tier: a ring is renamed, not emptied; O(K · log T) for a tenant
-- include: drain hold

local scope, name, pause = ARGV[2], ARGV[3], ARGV[4] == '1'

local function set_flag(key, field)
  if pause then
    return redis.call('HSETNX', key, field, 1)
  end
  return redis.call('HDEL', key, field)
end

if scope == 'tenant' then
  local changed = set_flag(tenant_key(name), 'paused')
  local t = tenant_of(name)
  place(t)
  count(t, 0, 0) -- a tenant that was only remembered for its pause is forgotten
  write_tenants()
  return changed
end

local shelved = {}
for _, tier in ipairs(tiers()) do
  local _, was = ring_of(tier)
  shelved[tier] = was
end
local changed = set_flag(pool_key, scope == 'pool' and 'paused' or 'paused:' .. name)
pool.paused = redis.call('HGET', pool_key, 'paused')
for _, tier in ipairs(tiers()) do
  local _, is = ring_of(tier)
  local from = is and ring_key(tier) or shelf_key(tier)
  if is ~= shelved[tier] and redis.call('EXISTS', from) == 1 then
    redis.call('RENAME', from, is and shelf_key(tier) or ring_key(tier))
    if is then
      redis.call('HDEL', pool_key, 'since:' .. tier)
    else
      redis.call('HSET', pool_key, 'since:' .. tier, now)
      redis.call('PUBLISH', wake_key, tier) -- as in ring.lua
    end
  end
end
return changed
