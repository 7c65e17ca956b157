-- Whose turn it is among the tiers: the highest that has a runnable tenant and whose gate passes; or, on a valve turn,
-- the one of those in arrears that nobody served for longest, under the top tier's gate.
-- include: valve

local function own_turn()
  for _, tier in ipairs(tiers()) do
    if runnable(tier) and not shut[tier] then
      local backend = open_backend(tier)
      if backend then
        served[tier] = true
        return tier, backend, tier
      end
      shut[tier] = true -- live leases only grow within a call: it stays shut
      refuse_tier(tier)
    end
  end
end

-- Returns the tier and the backend of the next pop, and the tier whose gate lets it through; or nil.
local function next_turn()
  local late, wait = arrears()
  local due = 0 -- of the valve, in millionths of a turn: one in sixteen pops at first, growing with the wait to one in four
  if late then
    due = turns.valve + math.min(MILLION / 4, math.floor(MILLION * wait / (16 * turns.valve_ms)))
    if due >= MILLION then
      local tier, backend, gate_tier = valve_turn(late)
      if tier then
        turns.valve = due - MILLION
        return tier, backend, gate_tier
      end
    end
  end
  local tier, backend, gate_tier = own_turn()
  if tier then
    turns.valve = math.min(due, MILLION)
  elseif late and now - past(turns.valved_at) >= turns.valve_ms / 16 then
    return valve_turn(late) -- nothing passes its own gate: no pops to have a share of, so one now and then
  end
  return tier, backend, gate_tier
end
