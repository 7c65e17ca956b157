-- A delivery's hash: tenant lane endpoint('': a job's or batch's own hook) event object payload created(ms); url(where it was last
-- sent, or will be), and of an own hook: secret headers(JSON); state reason; since(when its schedule began) next(when it may go)
-- n(attempts in this schedule) token(how often it was given out) tries(JSON, one a line) excerpt(of the last answer);
-- settled(the token that was), said(why that disabled its endpoint), resent(the token that was out then).
-- include: hash time

local OLDEST = 345600000 -- ms, 96 h: then it fails, however its lane stands
local KEPT = 604800000 -- ms, 7 days after its last change; what has arrived is kept as long as the settings say
local LISTED = 10000

-- Keeps a list within bounds of age and number.
local function bound(key)
  redis.call('PEXPIRE', key, OLDEST + KEPT)
  local past = redis.call('ZCOUNT', key, '-inf', '(' .. int(now - OLDEST - KEPT))
  past = math.max(past, redis.call('ZCARD', key) - LISTED)
  if past > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, past - 1)
  end
end

-- Why nothing goes to a lane any more. It has its endpoint's id, or is of a tenant's own hooks.
local function barred(lane)
  if string.sub(lane, 1, 6) ~= 'adhoc_' then
    local enabled = redis.call('HGET', endpoint_key(lane), 'enabled')
    return not enabled and 'deleted' or enabled ~= '1' and 'disabled' or nil
  end
end

-- Its state is its last; it is in no lane.
local function finish(id, state, reason, kept)
  redis.call('HSET', delivery_key(id), 'state', state, 'reason', reason)
  if state == 'failed' then
    local lane, created = unpack(redis.call('HMGET', delivery_key(id), 'lane', 'created'))
    redis.call('ZREMRANGEBYSCORE', failed_of_key(lane), '-inf', now - OLDEST - KEPT)
    redis.call('ZADD', failed_of_key(lane), created, id)
    redis.call('PEXPIRE', failed_of_key(lane), OLDEST + KEPT)
    redis.call('ZADD', all_failed_key, created, id)
    bound(all_failed_key)
  end
  redis.call('PEXPIRE', delivery_key(id), kept)
  redis.call('ZREM', delivery_ends_key, id)
  redis.call('HINCRBY', hook_counts_key, state, 1)
end

-- Its schedule begins. What is out right now is the first attempt of it.
local function start(id, lane)
  redis.call('HSET', delivery_key(id), 'state', 'pending', 'since', int(now), 'next', int(now), 'n', 0, 'reason', '')
  redis.call('PEXPIRE', delivery_key(id), KEPT)
  redis.call('ZADD', delivery_ends_key, now + OLDEST, id)
  redis.call('ZREM', failed_of_key(lane), id)
  redis.call('ZREM', all_failed_key, id)
  if redis.call('ZSCORE', lane_taken_key(lane), id) then
    redis.call('HSET', delivery_key(id), 'resent', redis.call('HGET', delivery_key(id), 'token'))
  else
    redis.call('ZADD', lane_due_key(lane), now, id)
  end
end

-- Up to `most` that are too old fail. What is out is looked at again when its lease ends.
local function fail_old(most)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', delivery_ends_key, '-inf', now, 'LIMIT', 0, most)) do
    local lane = redis.call('HGET', delivery_key(id), 'lane')
    local lease_ends = lane and redis.call('ZSCORE', lane_taken_key(lane), id)
    if not lane then
      redis.call('ZREM', delivery_ends_key, id)
    elseif lease_ends and tonumber(lease_ends) > now then
      redis.call('ZADD', delivery_ends_key, lease_ends, id)
    else
      redis.call('ZREM', lane_taken_key(lane), id)
      redis.call('ZREM', lane_due_key(lane), id)
      finish(id, 'failed', 'too_old', KEPT)
    end
  end
end

-- Notes it in a list. What is left out of a list is delivered all the same.
local function list(key, id)
  redis.call('ZADD', key, now, id)
  bound(key)
end
