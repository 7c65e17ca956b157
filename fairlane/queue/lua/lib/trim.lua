-- Keeps what is finished from growing without bound.
-- include: pool

local DONE_MOST = 10000
local EVENTS_MOST = 100000

-- `events` is trimmed below what every consumer group has read and acknowledged; without a group nobody waits for it.
local function trim_events(most)
  local length = redis.call('XLEN', events_key)
  if length == 0 then
    return
  end
  local groups = redis.call('XINFO', 'GROUPS', events_key)
  if #groups == 0 then
    if length > EVENTS_MOST then
      redis.call('XTRIM', events_key, 'MAXLEN', '~', EVENTS_MOST)
    end
    return
  end
  local below
  local function at_most(id)
    local ms, n = string.match(id, '^(%d+)-(%d+)$')
    ms, n = tonumber(ms), tonumber(n)
    if not below or ms < below[1] or (ms == below[1] and n < below[2]) then
      below = {ms, n}
    end
  end
  for _, group in ipairs(groups) do
    local fields = {}
    for i = 1, #group, 2 do
      fields[group[i]] = group[i + 1]
    end
    at_most(fields['last-delivered-id'])
    if tonumber(fields['pending']) > 0 then
      at_most(redis.call('XPENDING', events_key, fields['name'])[2])
    end
  end
  redis.call('XTRIM', events_key, 'MINID', '~', int(below[1]) .. '-' .. int(below[2]))
end

local function trim(most)
  trim_events(most)
  local excess = redis.call('ZCARD', done_key) - DONE_MOST
  if excess > 0 then
    redis.call('ZREMRANGEBYRANK', done_key, 0, math.min(excess, 100 * most) - 1)
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', dead_key, '-inf', now - pool.dead_ttl_ms, 'LIMIT', 0, most)) do
    redis.call('ZREM', dead_key, id)
  end
end
