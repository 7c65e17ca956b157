-- Gives out deliveries that are due: one of each lane in turn, the lane first whose time came first; and of no tenant more than
-- its share.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', how many, ms of their leases, how many of one lane may be out at once
-- returns  id, token, …
-- errors   none
-- events   none; PUBLISH none
-- cost     O((how many + SPARE + TENANTS · AT_ONCE) · log N)
-- include: drain delivery lineup share
local SPARE = 200 -- lanes that have nothing to give, and what comes back or fails on the way
local most, lease, concurrency = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local spare = SPARE
local TENANTS = 20 -- whose parked lanes are looked at
local lanes, ready, had_turn, held, given = {}, {}, {}, {}, {}
fail_old(SPARE)
unpark(TENANTS)

-- A lost lease used up no attempt, and its delivery is due since it was.
local function take_back(name)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', lane_taken_key(name), '-inf', now, 'LIMIT', 0, spare)) do
    redis.call('ZREM', lane_taken_key(name), id)
    local tenant, next_at = unpack(redis.call('HMGET', delivery_key(id), 'tenant', 'next'))
    redis.call('ZADD', lane_due_key(name), next_at or now, id)
    if tenant then
      comes_home(tenant, id)
    end
    spare = spare - 1
  end
end

local function due(name, many)
  return many > 0 and redis.call('ZRANGEBYSCORE', lane_due_key(name), '-inf', now, 'LIMIT', 0, many) or {}
end

-- What of a lane may go. Of one that nothing goes to any more, what comes up fails.
local function look_at_lane(name)
  take_back(name)
  local lane, reason = read_lane(name), barred(name)
  lanes[name] = reason and {} or lane
  if reason then
    for _, id in ipairs(due(name, spare)) do
      redis.call('ZREM', lane_due_key(name), id)
      if redis.call('HGET', delivery_key(id), 'state') == 'pending' then
        finish(id, 'failed', reason, KEPT)
      end
      spare = spare - 1
    end
    return {}
  end
  local room = limit_of(lane, concurrency) - redis.call('ZCARD', lane_taken_key(name))
  return due(name, opens_at(lane) <= now and math.min(room, most) or 0)
end

local function give(name, id)
  local d = read(delivery_key(id), 'state', 'tenant')
  if d.state == 'pending' and room_of(d.tenant) <= 0 then
    held[name], ready[name] = d.tenant, {}
    return
  end
  redis.call('ZREM', lane_due_key(name), id)
  if d.state == 'pending' then
    redis.call('ZADD', lane_taken_key(name), now + lease, id)
    goes_out(d.tenant, id, now + lease)
    given[#given + 1], given[#given + 2] = id, int(redis.call('HINCRBY', delivery_key(id), 'token', 1))
  end
end

local line = redis.call('ZRANGEBYSCORE', lanes_due_key, '-inf', now, 'LIMIT', 0, most + SPARE)
while #line > 0 and #given < 2 * most do
  local rest = {}
  for _, name in ipairs(line) do
    if #given < 2 * most then
      ready[name] = ready[name] or look_at_lane(name)
      local id = table.remove(ready[name], 1)
      if id then
        give(name, id)
        had_turn[name] = true
      end
      if ready[name][1] then
        rest[#rest + 1] = name
      end
    end
  end
  line = rest
end
for name, lane in pairs(lanes) do
  if held[name] then
    park(held[name], name)
  else
    rank(name, lane, concurrency, had_turn[name])
  end
end
return given
