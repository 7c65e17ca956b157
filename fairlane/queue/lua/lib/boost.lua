-- The soft boost: Φ = arrival − b. b(γ, w) = (1/γ)·ln(1/(1 − e^(−γw))), capped: work expected to be short gets a
-- bounded head start, and age wins in the end. (UniBoost; γ per ms, w and b in ms.)
-- include: pool

local GAMMA_FIRST = 0.2 -- per second, until the thermostat has seen enough

-- γ per ms: what the policy pins it to, or ('auto') what the thermostat last set.
local function gamma_of()
  local set = pool.gamma_now -- false, or '', if nothing was set
  return (tonumber(pool.gamma) or tonumber(set or '') or GAMMA_FIRST) / 1000
end

local function boost_of(gamma, expected_ms)
  if gamma <= 0 then
    return 0
  end
  local short = 1 - math.exp(-math.min(50, gamma * math.max(1, expected_ms)))
  return math.floor(math.min(pool.boost_max_ms, math.log(1 / short) / gamma))
end
