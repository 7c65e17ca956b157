-- A batch's hash: status tenant endpoint input window created expires metadata tiers pools output_s(how long its files are
-- kept), <state>_at; once its file was found good: model pool(code) total; fed(requests) offset(bytes) open_bytes full(ms that
-- it waits, for the queue was full); completed failed late(of the failed: its job has expired) answer_bytes(how long answers
-- are of late) input_tokens output_tokens; ending(its end state, once nothing more is marked) output_id error_id; checked;
-- faults(JSON).
--
-- When batches are looked at: `batch_turns` has each of a tenant's, and when. Those that were handed over are in
-- `batches_handed` until their step is done or they count as lost; they are few, so that nobody waits for another's many.
-- `batches_due` has each tenant, and when there is something to hand over of it.
-- include: time

local MOST_HANDED = 4

local function earlier(key, member, at)
  local known = tonumber(redis.call('ZSCORE', key, member))
  if not known or known > at then
    redis.call('ZADD', key, at, member)
  end
end

-- The tenant's first turn, unless it has enough handed over: batch, when. And when the first of those counts as lost.
local function next_turn(tenant)
  local handed = redis.call('ZRANGE', batches_handed_key(tenant), 0, -1, 'WITHSCORES')
  local taken = {}
  for i = 1, #handed, 2 do
    taken[handed[i]] = true
  end
  local turns = #handed < 2 * MOST_HANDED and redis.call('ZRANGE', batch_turns_key(tenant), 0, MOST_HANDED - 1, 'WITHSCORES') or {}
  for i = 1, #turns, 2 do
    if not taken[turns[i]] then
      return turns[i], tonumber(turns[i + 1]), tonumber(handed[2])
    end
  end
  return nil, nil, tonumber(handed[2])
end

-- The tenant's place in `batches_due`. Who waits for its turn keeps it; who has just had one (`served`) goes behind.
local function seat(tenant, served)
  local _, at, lost = next_turn(tenant)
  local seated = tonumber(redis.call('ZSCORE', batches_due_key, tenant))
  at = math.min(at or math.huge, lost or math.huge)
  if at == math.huge then
    redis.call('ZREM', batches_due_key, tenant)
  elseif served or not seated or (seated > now and seated > at) then
    redis.call('ZADD', batches_due_key, math.max(at, now), tenant)
  end
end

-- The batch is to be looked at in `ms`, or earlier if it was to be already.
local function look_at(id, ms)
  local tenant = redis.call('HGET', batch_key(id), 'tenant')
  earlier(batch_turns_key(tenant), id, now + ms)
  seat(tenant)
end
