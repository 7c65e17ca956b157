-- Whose turn it is among the tiers: the highest that has a runnable tenant and whose gate passes; or, on a valve turn,
-- the one longest in arrears, under tier 0's gate.
-- include: gate ring

local MILLION = 1000000
local turns, popped, served, shut = {since = {}, waiting = {}}, {}, {}, {}

-- Reads the turns and the backends.
local function read_turns()
  local fields = {'backends', 'stale_ms', 'valve_ms', 'valve', 'valved_at', 'waiting'}
  for _, tier in ipairs(tiers()) do
    fields[#fields + 1], fields[#fields + 2], fields[#fields + 3] = 'clock:' .. tier, 'since:' .. tier, 'waiting:' .. tier
  end
  local h = redis.call('HMGET', pool_key, unpack(fields))
  read_backends(h[1], h[2])
  turns.valve_ms, turns.valve, turns.valved_at, turns.total = tonumber(h[3]), tonumber(h[4]) or 0, tonumber(h[5]) or 0, h[6]
  for i, tier in ipairs(tiers()) do
    clocks[tier], turns.since[tier], turns.waiting[tier] = tonumber(h[3 * i + 4]) or 0, h[3 * i + 5], h[3 * i + 6]
    turns.late = turns.late or h[3 * i + 5] and now - h[3 * i + 5] >= turns.valve_ms
  end
end

-- A tier has runnable work exactly while it has a `since`: when it became runnable or its own gate last served it.
local function runnable(tier)
  return turns.since[tier] and not emptied[tier]
end

-- In arrears: a tier that is runnable, and since longer than valve_ms. Returns the one that is it longest, and its wait.
local function arrears()
  local worst, longest
  for _, tier in ipairs(turns.late and tiers() or {}) do
    local wait = runnable(tier) and not served[tier] and now - turns.since[tier]
    if wait and wait >= turns.valve_ms and wait > (longest or 0) then
      worst, longest = tier, wait
    end
  end
  return worst, longest
end

local function own_turn()
  for _, tier in ipairs(tiers()) do
    if runnable(tier) and not shut[tier] then
      local backend = open_backend(tier)
      if backend then
        served[tier] = true
        return tier, backend
      end
      shut[tier] = true -- live leases only grow within a call: it stays shut
      refuse_tier(tier)
    end
  end
end

-- The valve's turn: `late` is served although its own gate may be shut.
local function valve_turn(late)
  local backend = open_backend(tiers()[1])
  if backend then
    turns.valved_at = now
    return late, backend
  end
end

-- Returns the tier and the backend of the next pop, or nil.
local function next_turn()
  local late, wait = arrears()
  local due = 0 -- of the valve, in millionths of a turn: one in sixteen pops at first, growing with the wait to one in four
  if late then
    due = turns.valve + math.min(MILLION / 4, math.floor(MILLION * wait / (16 * turns.valve_ms)))
    if due >= MILLION then
      local tier, backend = valve_turn(late)
      if tier then
        turns.valve = due - MILLION
        return tier, backend
      end
    end
  end
  local tier, backend = own_turn()
  if tier then
    turns.valve = math.min(due, MILLION)
  elseif late and now - turns.valved_at >= turns.valve_ms / 16 then
    return valve_turn(late) -- nothing passes its own gate: no pops to have a share of, so one now and then
  end
  return tier, backend
end

local function write_turns()
  local fields = {'waiting', turns.total, 'valve', turns.valve, 'valved_at', turns.valved_at}
  for tier in pairs(popped) do
    local n = #fields
    fields[n + 1], fields[n + 2] = 'clock:' .. tier, clocks[tier]
    fields[n + 3], fields[n + 4] = 'waiting:' .. tier, turns.waiting[tier]
    if served[tier] and runnable(tier) then
      fields[n + 5], fields[n + 6] = 'since:' .. tier, now
    end
  end
  redis.call('HSET', pool_key, unpack(fields))
end
