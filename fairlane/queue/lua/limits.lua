-- Sets a tenant's limits in this pool and puts the tenant where it now belongs. A copy that is not newer changes nothing.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', tenant, limits as tenant.lua describes them, their version, if they are a copy of the account's | '',
--          the limits that the change starts from | ''
-- returns  1, or 0 if it has others than those, or this version: nothing is changed
-- errors   none
-- events   none; PUBLISH wake
-- cost     O(K · log T)
-- include: drain hold

local t, version = tenant_of(ARGV[2]), tonumber(ARGV[4])

-- The same limits may be spelled in two ways: 2 and 2.0.
local function are(limits)
  local weight, max_inflight, rpm, tpm, max_waiting = string.match(limits, '(%S+) (%S+) (%S+) (%S+) (%S+)')
  return t.weight == tonumber(weight) and t.max_inflight == tonumber(max_inflight) and t.rpm == tonumber(rpm)
    and t.tpm == tonumber(tpm) and t.max_waiting == tonumber(max_waiting)
end

if ARGV[5] ~= '' and not are(ARGV[5]) then
  return 0
end
if version and version <= (tonumber(redis.call('HGET', tenant_key(t.name), 'version')) or 0) then
  return 0
end
local held = redis.call('ZSCORE', held_key, t.name)
local heads, credits = {}, {}
for _, tier in ipairs(tiers()) do
  heads[tier] = not held and line_front(tier, t.name) or nil
  credits[tier] = heads[tier] and credit(t, heads[tier])
end
redis.call('HSET', tenant_key(t.name), 'limits', ARGV[3])
if version then
  redis.call('HSET', tenant_key(t.name), 'version', int(version))
end
tenants[t.name] = nil
t = tenant_of(t.name)
-- A place in the ring is virtual time less credit, and a credit depends on the weight.
for tier, head in pairs(heads) do
  redis.call('ZINCRBY', (ring_of(tier)), credits[tier] - credit(t, head), t.name)
end
place(t)
return 1
