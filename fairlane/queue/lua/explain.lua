-- Why a job waits, at this moment: its place in its line, its tenant's place in the ring, what holds the tenant, what
-- waits in the tiers above, and what each backend's gate says to its tier. Reads only.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, most entries of its line to count
-- returns  state, tenant, tier, jobs ahead in its line (at most the bound), its tenant's rank in the ring | -1,
--          tenants in the ring, hold reason | '', held until | '', 1 if its tier or pool is paused | 0,
--          {tier, depth, …} from the top down to its own, {backend, live, limit, reason | 'open', seen, …}
-- errors   NOTFOUND; ELSEWHERE
-- events   none; PUBLISH none
-- cost     O(bound + log T + K · B)
-- include: hold gate

local job = load_job(ARGV[2], 'state', 'spec')
if not job.state or job.state == 'moving' or job.state == 'moved' then
  return refuse(job)
end
local tier, tenant, ahead = job.tier, job.tenant, 0
if job.state == 'queued' then
  ahead = redis.call('ZCOUNT', rejoin_key(tier, tenant), '-inf', '(' .. job.seq)
          + #redis.call('XRANGE', line_key(tier, tenant), '-', int(job.seq - 1) .. '-0', 'COUNT', ARGV[3])
end
local ring, shelved = ring_of(tier)
local till, why = hold_of(tenant_of(tenant))
local depths, gates = {}, {}
for _, t in ipairs(tiers()) do
  depths[#depths + 1], depths[#depths + 2] = t, tonumber(redis.call('HGET', pool_key, 'waiting:' .. t)) or 0
  if t == tier then
    break
  end
end
read_backends({tier})
for _, b in ipairs(backends) do
  local limit, reason = limit_of(b, tier)
  for _, value in ipairs({b.name, b.live, limit, b.live < limit and 'open' or reason}) do
    gates[#gates + 1] = value
  end
  gates[#gates + 1] = redis.call('HGET', backend_key(b.name), 'seen') or '{}'
end
return {job.state, tenant, tier, math.min(ahead, tonumber(ARGV[3])), redis.call('ZRANK', ring, tenant) or -1,
        redis.call('ZCARD', ring), why or '', till and till < math.huge and int(till) or '', shelved and 1 or 0,
        depths, gates}
