-- The numbers of the tiers that a call pops from: read when it first pops from one, written once, after its last pop.
-- include: turn

local popped = {}

local function numbers_of(tier)
  if not popped[tier] then
    local clock, waiting, inflight = unpack(
      redis.call('HMGET', pool_key, 'clock:' .. tier, 'waiting:' .. tier, 'inflight:' .. tier))
    clocks[tier] = tonumber(clock) or 0
    popped[tier] = {waiting = waiting, inflight = tonumber(inflight) or 0}
  end
  return popped[tier]
end

local function write_pops()
  local fields = {'waiting', pool.waiting}
  local function set(name, value)
    fields[#fields + 1], fields[#fields + 2] = name, value
  end
  if turns.late or pool.valve ~= '0' then
    set('valve', turns.valve)
    set('valved_at', turns.valved_at)
  end
  for tier, numbers in pairs(popped) do
    set('clock:' .. tier, clocks[tier])
    set('waiting:' .. tier, numbers.waiting)
    set('inflight:' .. tier, numbers.inflight)
    if turns.valved[tier] > 0 then
      set('valved:' .. tier, turns.valved[tier])
    end
    if served[tier] and runnable(tier) then
      set('since:' .. tier, now)
    end
  end
  redis.call('HSET', pool_key, unpack(fields))
end

-- Comes after all that a full Redis could refuse.
local function write_mended()
  for tier in pairs(turns.mended) do
    if runnable(tier) then
      redis.call('HSET', pool_key, 'since:' .. tier, now)
    end
  end
end
