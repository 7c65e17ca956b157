-- The ring of a tier: its runnable tenants by virtual time less the credit of their head. Only enter and leave change
-- who is in it. A paused tier's ring stands on a shelf, where no pop looks.
-- include: pool line tenant

local function ring_of(tier)
  if pool.paused or redis.call('HEXISTS', pool_key, 'paused:' .. tier) == 1 then
    return shelf_key(tier), true
  end
  return ring_key(tier), false
end

-- Virtual time that a turn costs. In requests mode tenants of equal weight alternate; in tokens mode (VTC) a turn
-- costs what it takes from the engine: input + 2 × output tokens, and one at least.
local function turn_cost(t, tokens)
  return math.floor((pool.fairness == 'tokens' and 1000 * math.max(1, tokens) or 1000000) / t.weight)
end

-- A bounded head start for work expected to be short: at most one turn.
local function credit(t, head)
  return math.floor(math.min(1, head.boost / pool.boost_max_ms) * turn_cost(t, head.tokens))
end

local clocks = {} -- the clocks that this call has read or moved

local function clock_of(tier)
  clocks[tier] = clocks[tier] or tonumber(redis.call('HGET', pool_key, 'clock:' .. tier)) or 0
  return clocks[tier]
end

-- Where a newcomer starts: at the clock, but not more than `own` behind the first in the ring. (Turns that were given
-- back, corrections and credits leave a ring behind its clock.)
local function start_of(tier, ring, own)
  local first = redis.call('ZRANGE', ring, 0, 0, 'WITHSCORES')[2]
  return first and math.min(clock_of(tier), first + own) or clock_of(tier)
end

-- No credit for absence (it starts at the clock, or one turn of its own behind the first), none for leaving and coming
-- back (left).
local function enter(tier, t, head)
  local ring, shelved = ring_of(tier)
  local left = redis.call('ZSCORE', left_key(tier), t.name) or 0
  local v = math.max(start_of(tier, ring, credit(t, head) + turn_cost(t, head.tokens)), left)
  redis.call('ZREM', left_key(tier), t.name)
  redis.call('ZADD', ring, v - credit(t, head), t.name)
  if not shelved and redis.call('ZCARD', ring) == 1 then
    redis.call('HSET', pool_key, 'since:' .. tier, now)
    redis.call('PUBLISH', wake_key, tier) -- always: whom acquire.lua told `none` waits for it
  end
end

local emptied = {} -- tiers whose ring this call emptied

-- v: the virtual time that the tenant would go on with. Whoever left long ago has nothing to be remembered for once
-- newcomers start later: each that leaves takes up to four of them out of `left`.
local function leave(tier, t, v)
  local ring, shelved = ring_of(tier)
  redis.call('ZREM', ring, t.name)
  local past = redis.call('ZRANGEBYSCORE', left_key(tier), '-inf', start_of(tier, ring, 0), 'LIMIT', 0, 4)
  for _, gone in ipairs(past) do
    redis.call('ZREM', left_key(tier), gone)
  end
  redis.call('ZADD', left_key(tier), v, t.name)
  if not shelved and redis.call('EXISTS', ring) == 0 then
    redis.call('HDEL', pool_key, 'since:' .. tier)
    emptied[tier] = true
  end
end

-- Call it after the front of a line changed: puts `oldest` and the tenant's place in the ring right.
-- before, after: the line's head then and now, nil when there was or is none.
local function reseat(tier, t, before, after)
  if (before and before.id) == (after and after.id) then
    return
  end
  if after then
    redis.call('ZADD', oldest_key(tier), after.at, t.name)
  else
    redis.call('ZREM', oldest_key(tier), t.name)
  end
  if redis.call('ZSCORE', held_key, t.name) then
    return
  end
  if not before then
    return enter(tier, t, after)
  end
  local ring = ring_of(tier)
  local v = redis.call('ZSCORE', ring, t.name) + credit(t, before)
  if after then
    redis.call('ZADD', ring, v - credit(t, after), t.name)
  else
    leave(tier, t, v)
  end
end
