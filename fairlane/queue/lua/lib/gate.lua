-- The gate: may a tier send to a backend now? The observer wrote, per tier, how many leases the backend may carry for
-- it ("limit fallback why"); a pop only compares the live leases with that. 64 backends a pool at the most.
-- include: pool

local backends = {}

-- Reads the backends, with their gates for some tiers.
local function read_backends(asking)
  local fields = {'taken', 'ended', 'status', 'fresh_at'}
  for i, tier in ipairs(asking) do
    fields[4 + i] = 'gate:' .. tier
  end
  if pool.affinity == 'prefix' then
    fields[#fields + 1] = 'epoch'
  end
  for name in string.gmatch(pool.backends or '', '%S+') do
    local h = redis.call('HMGET', backend_key(name), unpack(fields))
    local b = {name = name, live = (h[1] or 0) - (h[2] or 0), opened = {}, status = h[3], gates = {}, limits = {}, epoch = h[5 + #asking] or '0',
               stale = now - (h[4] or 0) > tonumber(pool.stale_ms)}
    for i, tier in ipairs(asking) do
      b.gates[tier] = h[4 + i]
    end
    backends[#backends + 1] = b
  end
end

-- Leases that the backend may carry for this tier, and what it says when it carries them.
-- One that nobody has observed yet gets one job at a time.
local function limit_of(b, tier)
  local gate = b.limits[tier]
  if not gate then
    local limit, fallback, why = string.match(b.gates[tier] or '1 1 stale', '(%d+) (%d+) (%S+)')
    gate = {limit = tonumber(limit), why = why}
    if b.status ~= 'up' then
      gate = {limit = 0, why = b.status}
    elseif b.stale then
      gate = {limit = tonumber(fallback), why = 'stale'}
    end
    b.limits[tier] = gate
  end
  return gate.limit, gate.why
end

-- The backend with the most room for this tier, of equals the first by name (backend.lua keeps them sorted); nil when none
-- has any.
local function open_backend(tier)
  local best, most = nil, 0
  for _, b in ipairs(backends) do
    local room = limit_of(b, tier) - b.live
    if room > most then
      best, most = b, room
    end
  end
  return best
end

-- A pop was refused for this tier: write_backends counts it and keeps its numbers, so that explain and the page can show
-- them, but once in 100 ms only. Pops that were let through are counted each.
local function refuse_tier(tier)
  for _, b in ipairs(backends) do
    local limit, why = limit_of(b, tier)
    b.refused = b.refused or {}
    b.refused[tier] = {why, b.live, limit, now}
  end
end

local NOTED_EVERY_MS = 100 -- a fleet that waits is refused many times: with 64 backends noting each one would cost 5 ms

local function write_backends()
  local refused
  for _, b in ipairs(backends) do
    for tier, n in pairs(b.opened) do
      redis.call('HINCRBY', backend_key(b.name), 'taken', n)
      redis.call('HINCRBY', backend_key(b.name), 'n:' .. tier .. ':open', n)
    end
    refused = refused or b.refused
  end
  if refused then
    redis.call('HSET', pool_key, 'refused', 1)
  end
  local noted_at = tonumber(pool.noted_at) or 0
  if not refused or now >= noted_at and now - noted_at < NOTED_EVERY_MS then
    return
  end
  redis.call('HSET', pool_key, 'noted_at', now)
  for _, b in ipairs(backends) do
    local crowded = false -- else it says nothing of how much the backend could take: it drains, say, and has no job
    for tier, said in pairs(b.refused) do
      crowded = crowded or said[1] == 'full' or said[1] == 'room'
      redis.call('HINCRBY', backend_key(b.name), 'n:' .. tier .. ':' .. said[1], 1)
      redis.call('HSET', backend_key(b.name), 'said:' .. tier, table.concat(said, ' '))
    end
    if crowded then
      redis.call('HINCRBY', backend_key(b.name), 'denied', 1)
    end
  end
end
