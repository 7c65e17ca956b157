-- The pool's one hash: its policy, and the numbers that nearly every script reads or moves.
-- `pool.<name>` is its field of that name, read at the start: exactly those that a script uses (scripts.py).
-- Policy: model.Policy's fields; paused, paused:<tier>. Numbers: seq; waiting (queued and delayed), waiting:<tier> (queued),
-- inflight:<tier> (live leases); clock:<tier> since:<tier> valved:<tier> valve valved_at (whose turn it is). Also backends, and
-- refused (a pop was, since the last wake) noted_at (when that was last counted).
-- include: time hash

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

-- Whoever names a tier may not know yet that it was taken away (set_policy.lua); nobody would ever look at its lines.
local function is_tier(tier)
  return string.find(',' .. pool.tiers .. ',', ',' .. tier .. ',', 1, true) ~= nil
end

-- A pop was refused since the last wake, and now there may be room.
local function wake(why)
  if pool.refused then
    redis.call('HDEL', pool_key, 'refused')
    redis.call('PUBLISH', wake_key, why)
    pool.refused = false
  end
end
