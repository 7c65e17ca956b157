-- One pop: the first tenant of a tier's ring, the head of its line, a lease on a backend.
-- include: turn numbers hold outcome prefix

-- The first write of acquire, which must free (drain.lua).
local function take_head(tier, tenant, head)
  if head.back then
    redis.call('ZREM', rejoin_key(tier, tenant), head.id)
  elseif head.alone then
    redis.call('DEL', line_key(tier, tenant)) -- an empty stream would keep 4.5 KB
  else
    redis.call('XDEL', line_key(tier, tenant), head.place)
  end
end

-- Charges the tenant for its turn and gives it its next place. Returns the charge.
local function charge_turn(tier, t, score, head, after)
  local v = score + credit(t, head)
  local cost = turn_cost(t, head.tokens)
  clocks[tier] = math.max(clocks[tier], v)
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

-- The head of the line cannot run: it is past its deadline, and expires, or somebody deleted its hash by hand. It leaves the
-- line without a turn.
local function pass_over(tier, t, front, after, state)
  reseat(tier, t, front, after)
  if FROM.expire[state] then
    local job = load_job(front.id, 'spec', 'deadline', 'batch', 'hook')
    expire(job)
  end
end

-- Leases the next job of `tier` until `till`, on backend `b` or on one that its prompt is nearer to, and appends what its dispatcher gets to know to the reply.
-- Returns its id, token and size, or nil if it passed over one that cannot run.
local function pop(tier, b, gate_tier, dispatcher, till, reply)
  local first = redis.call('ZRANGE', ring_key(tier), 0, 0, 'WITHSCORES')
  local t, numbers = tenant_of(first[1]), numbers_of(tier)
  local front, after = line_front(tier, t.name)
  local id = front.id
  local state, spec, tries, token, deadline, head, body = unpack(
    redis.call('HMGET', job_key(id), 'state', 'spec', 'tries', 'token', 'deadline', 'head', 'body'))
  take_head(tier, t.name, front)
  count(t, -1, 0)
  pool.waiting, numbers.waiting = pool.waiting - 1, numbers.waiting - 1
  if not FROM.acquire[state] or deadline and tonumber(deadline) <= now then
    return pass_over(tier, t, front, after, state)
  end
  local hashes = pool.affinity == 'prefix' and redis.call('HGET', job_key(id), 'prefix')
  if hashes then
    b = nearest(gate_tier, b, hashes)
    remember(b, hashes)
  end
  local charged = charge_turn(tier, t, first[2], front, after)
  tries, token = (tries or 0) + 1, (token or 0) + 1
  redis.call('HSET', job_key(id), 'state', 'leased', 'tries', tries, 'token', token,
             'lease', b.name .. ' ' .. now .. ' ' .. int(charged) .. ' ' .. dispatcher)
  redis.call('ZADD', leases_key, till, id)
  if deadline then
    redis.call('ZREM', deadlines_key, id) -- it bounds the wait, not the work
  end
  b.live, b.opened[tier], numbers.inflight = b.live + 1, (b.opened[tier] or 0) + 1, numbers.inflight + 1
  count(t, 0, 1)
  if t.limited then
    local input, output = string.match(spec, '(%d+) (%d+) %d+$')
    charge_rates(t, 1, input + output)
    place(t)
  end
  reply[#reply + 1] = {id, token, b.name, spec, tries, till, head, body}
  return id, token, #head + #body
end
