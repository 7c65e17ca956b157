-- A pool's events are kept for webhooks (consumer group `webhooks`) from the first moment on that anybody wants one.
-- include: pool

local function join_hooks()
  if not pool.hooking then
    redis.call('HSET', pool_key, 'hooking', 1)
    redis.pcall('XGROUP', 'CREATE', events_key, 'webhooks', '$', 'MKSTREAM') -- it may be there
    pool.hooking = '1'
  end
end

-- How many outcomes were read and not acknowledged by who makes the webhooks; 1 if there are only others.
local function untold()
  for _, group in ipairs(pool.hooking and redis.call('XINFO', 'GROUPS', events_key) or {}) do
    local fields = {}
    for i = 1, #group, 2 do
      fields[group[i]] = group[i + 1]
    end
    if fields.name == 'webhooks' then
      local unread = redis.call('XRANGE', events_key, '(' .. fields['last-delivered-id'], '+', 'COUNT', 1)
      return math.max(tonumber(fields.pending), #unread)
    end
  end
  return 0
end
