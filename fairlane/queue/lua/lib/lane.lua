-- A lane's hash has what is not well with it, and is gone when all is: fails(in a row), shut(until, ms; stays there until something
-- has arrived: until then one delivery at a time goes as a probe), shut_ms(how long it was shut), pause(until, ms: the receiver
-- has asked for it), limit(of deliveries at once), good(arrivals since that changed).
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

-- When a delivery may really go whose time comes at `next_at` (ms).
local function goes_at(next_at, name)
  return int(math.max(tonumber(next_at), opens_at(read_lane(name))))
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
