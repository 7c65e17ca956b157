-- The pool's one hash: its policy, and the numbers that nearly every script reads or moves.
-- Policy: model.Policy's fields; paused, paused:<tier>. Numbers: seq; waiting (queued and delayed), waiting:<tier> (queued);
-- clock:<tier> since:<tier> valve valved_at (whose turn it is); refused (a pop was, since the last wake); backends.
-- include: time hash

local pool = {}
pool.tiers, pool.fairness, pool.boost_max_ms, pool.lease_ms, pool.result_ttl_ms, pool.paused, pool.refused = unpack(
  redis.call('HMGET', pool_key, 'tiers', 'fairness', 'boost_max_ms', 'lease_ms', 'result_ttl_ms', 'paused', 'refused'))

-- From the highest down.
local tiers_read

local function tiers()
  if not tiers_read then
    tiers_read = {}
    for tier in string.gmatch(pool.tiers, '[^,]+') do
      tiers_read[#tiers_read + 1] = tier
    end
  end
  return tiers_read
end

-- A pop was refused since the last wake, and now there may be room.
local function wake(why)
  if pool.refused then
    redis.call('HDEL', pool_key, 'refused')
    redis.call('PUBLISH', wake_key, why)
    pool.refused = false
  end
end
