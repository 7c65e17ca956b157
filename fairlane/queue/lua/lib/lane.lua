-- A lane's hash has what is not well with it, and is gone when all is: fails(in a row), shut(until, ms; stays there until something
-- has arrived: until then one delivery at a time goes as a probe), shut_ms(how long it was shut), pause(until, ms: the receiver
-- has asked for it), limit(of deliveries at once), good(arrivals since that changed).
-- lanes_due has each lane that has anything in it, by when it is to be looked at: too early does no harm, too late never happens.
-- include: hash time

local LANE_FIELDS = {'fails', 'shut', 'shut_ms', 'pause', 'limit', 'good'}
local LANE_KEPT = 86400000 -- ms
local SHUT_AFTER = 5 -- failures in a row
local SHUT_MOST = 20 -- times as long as at first
local PAUSE_MOST = 3600000 -- ms
local GROWS_AFTER = 10 -- arrivals

local function read_lane(name)
  local lane = read(lane_key(name), unpack(LANE_FIELDS))
  for field, value in pairs(lane) do
    lane[field] = tonumber(value)
  end
  return lane
end

local function write_lane(name, lane)
  local fields = {}
  for _, field in ipairs(LANE_FIELDS) do
    if lane[field] then
      fields[#fields + 1], fields[#fields + 2] = field, int(lane[field])
    end
  end
  redis.call('DEL', lane_key(name))
  if #fields > 0 then
    redis.call('HSET', lane_key(name), unpack(fields))
    redis.call('PEXPIRE', lane_key(name), LANE_KEPT)
  end
end

local function opens_at(lane)
  return math.max(lane.shut or 0, lane.pause or 0)
end

-- How many may be out at once.
local function limit_of(lane, concurrency)
  return lane.shut and 1 or math.min(lane.limit or concurrency, concurrency)
end

-- A delivery has arrived.
local function is_well(lane, concurrency)
  lane.fails, lane.shut, lane.shut_ms = nil, nil, nil
  if lane.limit then
    lane.good = (lane.good or 0) + 1
    if lane.good >= GROWS_AFTER then
      lane.limit, lane.good = lane.limit + 1, nil
    end
    if lane.limit >= concurrency then
      lane.limit, lane.good = nil, nil
    end
  end
end

-- A delivery has failed. What was sent before the lane was shut, and fails after that, does not lengthen it.
local function is_ill(lane, breaker_ms)
  lane.fails = (lane.fails or 0) + 1
  if lane.shut and lane.shut <= now then
    lane.shut_ms = math.min(2 * (lane.shut_ms or breaker_ms), SHUT_MOST * breaker_ms)
    lane.shut = now + lane.shut_ms
  elseif not lane.shut and lane.fails >= SHUT_AFTER then
    lane.shut_ms, lane.shut = breaker_ms, now + breaker_ms
  end
end

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
