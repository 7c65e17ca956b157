-- What an observer decides on: the work in each tier and all that is known of each backend, at one moment. Reads only.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | ''
-- returns  now, {tier, waiting, in flight, when it became runnable or its own gate last served it | -1: not runnable,
--          how many came from other tiers and pools less those that left so, …},
--          {name, {the backend's hash}, …}, the policy's version, what the last steering found (JSON)
-- errors   none
-- events   none; PUBLISH none
-- cost     O(K + B · K)
-- include: pool

local work, backends = {}, {}
for _, tier in ipairs(tiers()) do
  local waiting, inflight, since, moved = unpack(
    redis.call('HMGET', pool_key, 'waiting:' .. tier, 'inflight:' .. tier, 'since:' .. tier, 'moved:' .. tier))
  local numbers = {tonumber(waiting) or 0, tonumber(inflight) or 0, tonumber(since) or -1, tonumber(moved) or 0}
  for _, value in ipairs({tier, unpack(numbers)}) do
    work[#work + 1] = value
  end
end
for name in string.gmatch(pool.backends or '', '%S+') do
  backends[#backends + 1], backends[#backends + 2] = name, redis.call('HGETALL', backend_key(name))
end
return {int(now), work, backends, tonumber(pool.version) or 0, pool.steer or '{}'}
