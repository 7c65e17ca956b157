-- A tenant's hash: waiting (queued and delayed), inflight (live leases), paused,
-- limits "weight max_inflight requests_per_minute tokens_per_minute max_waiting" ('-' for none), their version (limits.lua),
-- rates "requests tokens", hooks (its endpoints want events of jobs) and hooks_version (set_hooks.lua).
-- include: time

local tenants = {}

local function tenant_of(name)
  local t = tenants[name]
  if not t then
    local waiting, inflight, paused, limits, rates, hooks = unpack(
      redis.call('HMGET', tenant_key(name), 'waiting', 'inflight', 'paused', 'limits', 'rates', 'hooks'))
    t = {name = name, waiting = tonumber(waiting) or 0, inflight = tonumber(inflight) or 0, weight = 1, paused = paused,
         limited = limits or paused, hooks = hooks}
    if limits then
      local weight, max_inflight, rpm, tpm, max_waiting = string.match(limits, '(%S+) (%S+) (%S+) (%S+) (%S+)')
      t.weight, t.max_inflight, t.rpm = tonumber(weight), tonumber(max_inflight), tonumber(rpm)
      t.tpm, t.max_waiting = tonumber(tpm), tonumber(max_waiting)
      local r, k = string.match(rates or '0 0', '(%d+) (%d+)')
      t.requests_at, t.tokens_at = tonumber(r) or 0, tonumber(k) or 0
    end
    tenants[name] = t
  end
  return t
end

local counted = {} -- tenants whose numbers this call moved

local function count(t, waiting, inflight)
  t.waiting, t.inflight = t.waiting + waiting, t.inflight + inflight
  counted[t.name] = t
end

-- Comes last in each script that counts. A tenant with nothing to be remembered takes no place.
local function write_tenants()
  for name, t in pairs(counted) do
    if t.waiting == 0 and t.inflight == 0 and not t.limited and not t.hooks then
      redis.call('DEL', tenant_key(name))
    else
      redis.call('HSET', tenant_key(name), 'waiting', t.waiting, 'inflight', t.inflight)
    end
  end
end

-- Rates by GCRA: per rate one theoretical arrival time, in µs. BURST_US of work may go at once.
local BURST_US = 5000000

-- Charges `requests` and `tokens` (negative: gives back) to the tenant's rates.
local function charge_rates(t, requests, tokens)
  if not t.rpm and not t.tpm then
    return
  end
  if t.rpm then
    t.requests_at = math.max(t.requests_at, now * 1000) + math.floor(requests * 60000000 / t.rpm)
  end
  if t.tpm then
    t.tokens_at = math.max(t.tokens_at, now * 1000) + math.floor(tokens * 60000000 / t.tpm)
  end
  redis.call('HSET', tenant_key(t.name), 'rates', int(t.requests_at) .. ' ' .. int(t.tokens_at))
end

-- When the tenant may run again (ms; math.huge: when something changes) and what holds it; nil: it may run now.
local function hold_of(t)
  if t.paused then
    return math.huge, 'paused'
  end
  if t.max_inflight and t.inflight >= t.max_inflight then
    return math.huge, 'inflight'
  end
  local r = t.rpm and t.requests_at - math.max(0, BURST_US - math.floor(60000000 / t.rpm)) or 0
  local k = t.tpm and t.tokens_at - BURST_US or 0
  local till = math.ceil(math.max(r, k) / 1000)
  if till > now then
    return till, r >= k and 'requests' or 'tokens'
  end
end
