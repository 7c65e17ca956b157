-- A lease: the entry of a job in `leases`, counted for its backend (taken − ended), its tenant (inflight) and its tier (inflight:<tier>). In flight
-- = live leases, always: only pop.lua begins one and only end_lease ends one.
-- include: job hold charge

local function load_lease(id)
  local state, spec, token, lease, tries, deadline, due, batch, attempts, hook = unpack(redis.call(
    'HMGET', job_key(id), 'state', 'spec', 'token', 'lease', 'tries', 'deadline', 'due', 'batch', 'attempts', 'hook'))
  local tenant, tier, seq, at, _, input, output, most = read_spec(spec or '')
  local backend, started, charged = string.match(lease or '', '(%S+) (%S+) (%S+)')
  return {id = id, state = state, token = token, tenant = tenant, tier = tier, seq = seq, at = due or at, input = input, output = output,
          max = most, backend = backend, started = started, began = state == 'leased' and started, charged = charged, tries = tries, deadline = deadline,
          batch = batch, attempts = attempts, hook = hook}
end

-- The job behind a lease, and whether `token` still held it. If so its entry is gone now: end_lease must follow.
-- This is the first write of a script that goes on even when Redis is full: it frees (see drain.lua).
local function claim(id, token)
  local job = load_lease(id)
  return job, job.token == token and redis.call('ZREM', leases_key, id) == 1
end

local ended, unfinished, left_tier = {}, {}, {} -- leases that this call ended, by backend and by tier
local rejected, good = {}, {} -- of those, attempts that failed by the caller's fault; whose went well, the last

local function one_more(counts, name)
  counts[name] = (counts[name] or 0) + 1
end

-- finished: the backend did the work. The learner of its capacity counts that; an error is no work, and may come at once.
local function end_lease(job, t, finished)
  one_more(ended, job.backend)
  one_more(left_tier, job.tier)
  if finished then
    good[job.backend] = job.tenant
  else
    one_more(unfinished, job.backend)
  end
  count(t, 0, -1)
  if t.limited then
    place(t)
  end
end

local EXCUSED_MS = 10000

-- The attempt failed by its backend's own fault. Or by its job's: so it counts too how often the tenant changes, and the
-- faults of a tenant while the backend has just answered another one well.
local function blame(job)
  local backend = backend_key(job.backend)
  local blamed_by, good_for, good_at = unpack(redis.call('HMGET', backend, 'blamed_by', 'good_for', 'good_at'))
  redis.call('HINCRBY', backend, 'faults', 1)
  if good_for and good_for ~= job.tenant and now - good_at <= EXCUSED_MS then
    redis.call('HINCRBY', backend, 'excused', 1)
  end
  if blamed_by ~= job.tenant then
    redis.call('HSET', backend, 'blamed_by', job.tenant)
    redis.call('HINCRBY', backend, 'blamers', 1)
  end
end

-- Comes last in each script that ends leases: writes once what they have in common.
local function write_ends()
  for backend, n in pairs(ended) do
    redis.call('HINCRBY', backend_key(backend), 'ended', n)
  end
  for backend, n in pairs(unfinished) do
    redis.call('HINCRBY', backend_key(backend), 'unfinished', n)
  end
  for backend, n in pairs(rejected) do
    redis.call('HINCRBY', backend_key(backend), 'rejected', n)
  end
  for backend, tenant in pairs(good) do
    redis.call('HSET', backend_key(backend), 'good_for', tenant, 'good_at', now)
  end
  for tier, n in pairs(left_tier) do
    redis.call('HINCRBY', pool_key, 'inflight:' .. tier, -n)
  end
  write_tenants()
  if next(ended) then
    wake('room')
  end
end

-- The history with one more line: "n backend started ended outcome status".
local function attempt_ended(job, outcome, status)
  return (job.attempts or '') .. job.tries .. ' ' .. job.backend .. ' ' .. job.started .. ' ' .. now .. ' ' .. outcome .. ' '
         .. (status or '') .. '\n'
end

-- The lease of a job that got its outcome while it ran has ended: only now may its hash go. Soon, if its batch has all
-- that it needs of it (forget_jobs.lua). Returns the state.
local COLLECTED_MS = 60000
local function retire(job)
  local collected, untold = unpack(redis.call('HMGET', job_key(job.id), 'collected', 'untold'))
  redis.call('HSET', job_key(job.id), 'attempts', attempt_ended(job, job.state))
  local kept = untold and math.max(AWAITED_MS, pool.result_ttl_ms) or pool.result_ttl_ms
  redis.call('PEXPIRE', job_key(job.id), collected and COLLECTED_MS or kept)
  return job.state
end
