-- Notes what came of an attempt, at the delivery, its lane and its endpoint, which it may disable. May be repeated.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', id, token, delivered | again | failed | gone, ms until again, why it failed | '', '1': it has too much to do,
--          ms that nothing is to go to its lane, HTTP status | '', the attempt (JSON), excerpt of the answer, and the rules:
--          how many of one lane may be out at once, ms that a lane is shut at first, ms of failing that disable an
--          endpoint, ms that it is kept if it has arrived
-- returns  why its endpoint was disabled by this | ''; nothing if somebody else has it
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N)
-- include: drain delivery lineup share
local TRIES = 30 -- that are kept
local id, token, verdict, delay, reason = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local pause, concurrency, breaker_ms = tonumber(ARGV[8]), tonumber(ARGV[12]), tonumber(ARGV[13])
local d = read(delivery_key(id), 'token', 'tenant', 'lane', 'endpoint', 'since', 'n', 'tries', 'settled', 'said', 'resent')
if d.settled == token then
  return d.said
end
if d.token ~= token or redis.call('ZREM', lane_taken_key(d.lane), id) == 0 then
  return
end

-- Why the endpoint is disabled now, or ''.
local function note_at_endpoint()
  local key = endpoint_key(d.endpoint)
  local e = read(key, 'enabled', 'failing_since')
  if not e.enabled then
    return ''
  end
  redis.call('HSET', key, 'last_at', int(now), 'last_status', ARGV[9])
  if verdict == 'delivered' then
    redis.call('HDEL', key, 'failing_since')
    return ''
  end
  local since = tonumber(e.failing_since or now)
  local why = verdict == 'gone' and 'gone' or now - since >= tonumber(ARGV[14]) and 'failing' or ''
  redis.call('HSET', key, 'failing_since', int(since))
  if why == '' or e.enabled ~= '1' then
    return ''
  end
  redis.call('HSET', key, 'enabled', '0', 'reason', why)
  return why
end

local function note_at_lane()
  local lane = read_lane(d.lane)
  if verdict == 'delivered' then
    is_well(lane, concurrency)
  elseif verdict ~= 'gone' then
    is_ill(lane, breaker_ms)
  end
  if ARGV[7] == '1' then
    lane.limit, lane.good = math.max(1, math.floor(math.min(lane.limit or concurrency, concurrency) / 2)), nil
  end
  if pause > 0 then
    lane.pause = math.max(lane.pause or 0, now + math.min(pause, PAUSE_MOST))
  elseif (lane.pause or now) <= now then
    lane.pause = nil
  end
  write_lane(d.lane, lane)
  return lane
end

local function note_at_delivery(said)
  local tries = (d.tries or '') .. ARGV[10] .. '\n'
  if select(2, string.gsub(tries, '\n', '')) > TRIES then
    tries = string.gsub(tries, '^[^\n]*\n', '', 1)
  end
  redis.call('HSET', delivery_key(id), 'n', d.n + 1, 'tries', tries, 'excerpt', ARGV[11], 'settled', token, 'said', said)
  if verdict == 'failed' and d.resent == token then
    verdict, delay = 'again', 0
  end
  if verdict == 'again' and now + delay < d.since + OLDEST then
    redis.call('HSET', delivery_key(id), 'next', int(now + delay))
    redis.call('PEXPIRE', delivery_key(id), KEPT)
    redis.call('ZADD', lane_due_key(d.lane), now + delay, id)
    return redis.call('HINCRBY', hook_counts_key, 'retried', 1)
  end
  if verdict == 'delivered' then
    return finish(id, 'delivered', '', ARGV[15])
  end
  finish(id, 'failed', verdict == 'again' and 'too_old' or verdict == 'gone' and 'gone' or reason, KEPT)
end

comes_home(d.tenant, id)
local said = d.endpoint ~= '' and note_at_endpoint() or ''
local lane = note_at_lane()
note_at_delivery(said)
rank(d.lane, lane, concurrency)
return said
