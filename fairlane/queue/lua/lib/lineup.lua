-- lanes_due has each lane that has anything in it (but for those that are parked, share.lua), by when it is to be looked at: too
-- early does no harm, too late never happens.
-- include: lane

-- The lane is to be looked at when something new may go: of use where its limit is not known.
local function line_up(name)
  local at = math.max(now, opens_at(read_lane(name)))
  local was = tonumber(redis.call('ZSCORE', lanes_due_key, name) or nil)
  if not was or at < was then
    redis.call('ZADD', lanes_due_key, at, name)
  end
end

-- Its receiver is another one now, or was mended: all goes at once.
local function forget_ills(name)
  redis.call('DEL', lane_key(name))
  if redis.call('EXISTS', lane_due_key(name)) == 1 then
    line_up(name)
  end
end

-- The lane is to be looked at when its next delivery may go, or a lease in it ends. One whose turn it was goes to the end of those
-- whose time has come, another one keeps its place there.
local function rank(name, lane, concurrency, had_turn)
  local function first(key)
    return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  end
  local due, at = first(lane_due_key(name)), first(lane_taken_key(name))
  if due and redis.call('ZCARD', lane_taken_key(name)) < limit_of(lane, concurrency) then
    at = math.min(math.max(due, opens_at(lane)), at or math.huge)
  end
  if not at then
    return redis.call('ZREM', lanes_due_key, name)
  end
  if at <= now then
    local place = not had_turn and tonumber(redis.call('ZSCORE', lanes_due_key, name) or nil)
    at = math.min(place or now, now)
  end
  redis.call('ZADD', lanes_due_key, at, name)
end
