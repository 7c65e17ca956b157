-- Writes a pool's changed policy, if nobody else changed it meanwhile, and keeps who changed what. Every later script
-- obeys the new one. A tier goes only when no job needs it any more; what was remembered of it goes with it.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', version that the change starts from, who and what (JSON), the tiers to take away 'a,b' | '', then
--          name, value of each setting
-- returns  1, or 0 if the version is another one
-- errors   TIERINUSE <what still needs a tier>
-- events   none; PUBLISH control, wake if a pop was refused since the last one
-- cost     O(settings); to take tiers away O(1,000 delayed jobs + K · B + the tenants that left them)
-- include: drain pool job

local DELAYED_MOST = 1000 -- that are looked through
local HISTORY_MOST = 100
local goes = {}
for tier in string.gmatch(ARGV[4], '[^,]+') do
  goes[tier] = true
end

-- What still needs one of the tiers that go, or nil. Dead jobs do not: one cannot be requeued into a tier that is gone.
local function needed()
  for tier in pairs(goes) do
    local waiting, inflight = unpack(redis.call('HMGET', pool_key, 'waiting:' .. tier, 'inflight:' .. tier))
    if (tonumber(waiting) or 0) > 0 then
      return waiting .. ' queued jobs in ' .. tier
    elseif (tonumber(inflight) or 0) > 0 then
      return inflight .. ' running jobs in ' .. tier
    end
  end
  local delayed = next(goes) and redis.call('ZRANGE', due_key, 0, DELAYED_MOST) or {}
  if #delayed > DELAYED_MOST then
    return 'more than ' .. DELAYED_MOST .. ' delayed jobs in the pool'
  end
  for _, id in ipairs(delayed) do
    local tier = load_job(id, 'spec').tier
    if goes[tier] then
      return 'delayed jobs in ' .. tier
    end
  end
end

local function forget(tier)
  redis.call('DEL', left_key(tier))
  redis.call('HDEL', pool_key, 'waiting:' .. tier, 'inflight:' .. tier, 'moved:' .. tier, 'clock:' .. tier, 'paused:' .. tier,
             'valved:' .. tier, 'work:' .. tier)
end

-- Its gates, what they last said, and how often.
local function forget_gates(backend)
  local fields = redis.call('HGETALL', backend)
  for i = 1, #fields, 2 do
    if goes[string.match(fields[i], '^%l+:([^:]+)')] then
      redis.call('HDEL', backend, fields[i])
    end
  end
end

local version = tonumber(pool.version) or 0
if version ~= tonumber(ARGV[2]) then
  return 0
end
local why = needed()
if why then
  return redis.error_reply('TIERINUSE ' .. why)
end
for tier in pairs(goes) do
  forget(tier)
end
for name in string.gmatch(next(goes) and pool.backends or '', '%S+') do
  forget_gates(backend_key(name))
end
version = version + 1
redis.call('HSET', pool_key, 'version', version, unpack(ARGV, 5))
redis.call('ZADD', history_key, version, int(version) .. ' ' .. int(now) .. ' ' .. ARGV[3])
redis.call('ZREMRANGEBYRANK', history_key, 0, -1 - HISTORY_MOST)
redis.call('PUBLISH', control_key, 'policy')
wake('policy')
return 1
