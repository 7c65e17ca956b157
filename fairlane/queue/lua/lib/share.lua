-- A tenant's share of the couriers: so many of its deliveries may be out at once, over all its lanes. Else one whose receivers all
-- hang would have everybody's. A lane that may not go for that is parked: off lanes_due until one of them comes home.
-- tenant_out:<tenant>: those that are out, by when their lease ends. lanes_parked:<tenant>: its lanes, by since when. parked: tenants,
-- by when lanes of theirs may go again.
-- include: time

local SHARE = 250
local AT_ONCE = 100 -- lanes that come back in one call

local rooms = {}

-- How many more may go out. A lease that was lost counts no more.
local function room_of(tenant)
  if not rooms[tenant] then
    redis.call('ZREMRANGEBYSCORE', tenant_out_key(tenant), '-inf', now)
    rooms[tenant] = SHARE - redis.call('ZCARD', tenant_out_key(tenant))
  end
  return rooms[tenant]
end

local function goes_out(tenant, id, till)
  rooms[tenant] = room_of(tenant) - 1
  redis.call('ZADD', tenant_out_key(tenant), till, id)
end

local function comes_home(tenant, id)
  redis.call('ZREM', tenant_out_key(tenant), id)
  rooms[tenant] = nil
  if redis.call('ZSCORE', parked_key, tenant) then
    redis.call('ZADD', parked_key, now, tenant)
  end
end

-- When the tenant's parked lanes are to be looked at: with the end of its next lease, if nothing comes home before that.
local function look_again(tenant)
  local first = redis.call('ZRANGE', tenant_out_key(tenant), 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', parked_key, room_of(tenant) > 0 and now or first or now, tenant)
end

local function park(tenant, lane)
  redis.call('ZREM', lanes_due_key, lane)
  redis.call('ZADD', lanes_parked_key(tenant), now, lane)
  look_again(tenant)
end

-- The lanes that may go again: of each tenant as many as it has room for.
local function unpark(tenants)
  for _, tenant in ipairs(redis.call('ZRANGEBYSCORE', parked_key, '-inf', now, 'LIMIT', 0, tenants)) do
    local room = math.min(room_of(tenant), AT_ONCE)
    for _, lane in ipairs(room > 0 and redis.call('ZRANGE', lanes_parked_key(tenant), 0, room - 1) or {}) do
      redis.call('ZREM', lanes_parked_key(tenant), lane)
      redis.call('ZADD', lanes_due_key, now, lane)
    end
    if redis.call('EXISTS', lanes_parked_key(tenant)) == 1 then
      look_again(tenant)
    else
      redis.call('ZREM', parked_key, tenant)
    end
  end
end
