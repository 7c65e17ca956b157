-- One pop: the first tenant of a tier's ring, the head of its line, a lease on a backend.
-- include: turn hold job

-- What the pops of one call have in common is written once, by write_pops.
local touched = {}

-- The first write of acquire, which must free (drain.lua).
local function take_head(tier, tenant, head)
  if head.back then
    redis.call('ZREM', rejoin_key(tier, tenant), head.id)
  elseif head.alone then
    redis.call('DEL', line_key(tier, tenant)) -- an empty stream would keep 4.5 KB
  else
    redis.call('XDEL', line_key(tier, tenant), head.place)
  end
  turns.total, turns.waiting[tier] = turns.total - 1, turns.waiting[tier] - 1
end

-- Charges the tenant for its turn and gives it its next place. Returns the charge.
local function charge_turn(tier, t, score, head, after)
  local v = score + credit(t, head)
  local cost = turn_cost(t, head.tokens)
  clocks[tier] = math.max(clocks[tier], v)
  popped[tier] = true
  if after then
    redis.call('ZADD', ring_key(tier), v + cost - credit(t, after), t.name)
    redis.call('ZADD', oldest_key(tier), after.at, t.name)
  else
    -- Its turn moves the clock by its share, or tenants that come once would keep it, and all who wait, where they are.
    clocks[tier] = clocks[tier] + math.floor(cost / redis.call('ZCARD', ring_key(tier)))
    leave(tier, t, v + cost)
    redis.call('ZREM', oldest_key(tier), t.name)
  end
  return cost
end

-- Leases the next job of `tier` on backend `b` until `till`, and appends what its dispatcher gets to know to the reply.
-- Returns its id, token and size, or nil if the line held a job whose hash somebody deleted by hand: that entry goes.
local function pop(tier, b, dispatcher, till, reply)
  local first = redis.call('ZRANGE', ring_key(tier), 0, 0, 'WITHSCORES')
  local t = tenant_of(first[1])
  local front, after = line_front(tier, t.name)
  local id = front.id
  local state, tries, token, most, input, output, deadline, head, body = unpack(redis.call('HMGET', job_key(id),
    'state', 'tries', 'token', 'max', 'input', 'output', 'deadline', 'head', 'body'))
  take_head(tier, t.name, front)
  local charged = charge_turn(tier, t, first[2], front, after)
  t.waiting = t.waiting - 1
  touched[t.name] = t
  if not FROM.acquire[state] then
    return nil
  end
  tries, token = (tries or 0) + 1, (token or 0) + 1
  redis.call('HSET', job_key(id), 'state', 'leased', 'tries', tries, 'token', token,
             'lease', b.name .. ' ' .. now .. ' ' .. int(charged) .. ' ' .. dispatcher)
  redis.call('ZADD', leases_key, till, id)
  if deadline then
    redis.call('ZREM', deadlines_key, id) -- it bounds the wait, not the work
  end
  b.live, b.now_taken = b.live + 1, b.now_taken + 1
  t.inflight = t.inflight + 1
  if t.limited then
    charge_rates(t, 1, input + output)
    place(t)
  end
  reply[#reply + 1] = {id, token, b.name, t.name, tier, tries, most, front.at, front.boost, input, output, till, head, body}
  return id, token, #head + #body
end

local function write_pops()
  for _, t in pairs(touched) do
    write_tenant(t)
  end
  write_turns()
end
