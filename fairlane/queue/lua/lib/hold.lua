-- Parking: a tenant that may not run leaves all rings until it may, so that no pop ever has to pass over it.
-- include: ring

-- Puts the tenant where it belongs now: into `held` and out of every ring, or the other way round.
local function place(t)
  local till = hold_of(t)
  local was_held = redis.call('ZREM', held_key, t.name) == 1
  if till then
    redis.call('ZADD', held_key, till == math.huge and '+inf' or till, t.name)
  end
  if (till ~= nil) == was_held then
    return
  end
  for _, tier in ipairs(tiers()) do
    local head = line_front(tier, t.name)
    if head and till then
      leave(tier, t, redis.call('ZSCORE', (ring_of(tier)), t.name) + credit(t, head))
    elseif head then
      enter(tier, t, head)
    end
  end
end
