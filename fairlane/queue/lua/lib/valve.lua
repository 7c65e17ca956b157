-- The valve: a bounded share of the turns for tiers in arrears, under the top tier's gate.
-- include: gate ring

local MILLION = 1000000
-- What the pool's hash says: by tier since and valved; valve: what it has saved up, in millionths of a turn; valved_at: its
-- last turn; valves: the latest valved.
local turns = {}
local served, shut = {}, {} -- tiers that this call has served by their own gate; whose gate it found shut

-- A time that was written, but none that is still to come: a clock that was set back would stop the valve until then. (`valved`
-- may be a few ms ahead.)
local function past(time)
  return time > now + 1000 and now or time
end

local function read_turns()
  local fields, asking, all = {}, {}, #tiers()
  for i, tier in ipairs(tiers()) do
    fields[i], fields[all + i] = 'since:' .. tier, 'valved:' .. tier
  end
  turns = {valve_ms = tonumber(pool.valve_ms), valve = tonumber(pool.valve) or 0, valved_at = tonumber(pool.valved_at) or 0,
           since = {}, late = false, valved = {}, valves = 0, mended = {}}
  local found = redis.call('HMGET', pool_key, unpack(fields))
  for i, tier in ipairs(tiers()) do
    local since = tonumber(found[i] or '')
    turns.mended[tier] = since and past(since) ~= since or nil
    since = since and past(since)
    turns.valved[tier] = tonumber(found[all + i] or 0)
    turns.valves = math.max(turns.valves, past(turns.valved[tier]))
    turns.since[tier], turns.late = since, turns.late or since and now - since >= turns.valve_ms
    if since or i == 1 then -- the valve asks the first tier's gate
      asking[#asking + 1] = tier
    end
  end
  read_backends(asking)
end

-- A tier has runnable work exactly while it has a `since`: when it became runnable or its own gate last served it.
local function runnable(tier)
  return turns.since[tier] and not emptied[tier]
end

-- In arrears: a tier that is runnable, and since longer than valve_ms. Returns the one of them that nobody has served for
-- longest, neither its own gate nor the valve (else a tier with work without end would keep the valve for itself), and the
-- longest wait of all.
local function arrears()
  local first, its_last, longest
  for _, tier in ipairs(turns.late and tiers() or {}) do
    local wait = runnable(tier) and not served[tier] and now - turns.since[tier]
    if wait and wait >= turns.valve_ms then
      local last = math.max(turns.since[tier], past(turns.valved[tier]))
      if not first or last < its_last then
        first, its_last = tier, last
      end
      longest = math.max(longest or 0, wait)
    end
  end
  return first, longest
end

-- The valve's turn: `late` is served although its own gate may be shut.
local function valve_turn(late)
  local backend = open_backend(tiers()[1])
  if backend then
    turns.valved_at, turns.valves = now, math.max(now, turns.valves + 1) -- no two turns at the same time
    turns.valved[late] = turns.valves
    return late, backend, tiers()[1]
  end
end
