-- A lease: the entry of a job in `leases`, counted for its backend (taken − ended) and its tenant (inflight). In flight
-- = live leases, always: only pop.lua begins one and only end_lease ends one.
-- include: job hold charge

local function load_lease(id)
  local h = redis.call('HMGET', job_key(id), 'state', 'token', 'tenant', 'tier', 'lease', 'tries', 'max', 'seq', 'deadline',
                       'batch', 'input', 'output', 'attempts')
  local job = {id = id, state = h[1], token = h[2], tenant = h[3], tier = h[4], tries = h[6], max = h[7], seq = h[8],
               deadline = h[9], batch = h[10], input = h[11], output = h[12], attempts = h[13]}
  if h[5] then
    job.backend, job.started, job.charged = string.match(h[5], '(%S+) (%S+) (%S+)')
  end
  return job
end

-- The job behind a lease, and whether `token` still held it. If so its entry is gone now: end_lease must follow.
-- This is the first write of a script that goes on even when Redis is full: it frees (see drain.lua).
local function claim(id, token)
  local job = load_lease(id)
  return job, job.token == token and redis.call('ZREM', leases_key, id) == 1
end

-- finished: the backend did its part, well or badly; the learner of its capacity counts that.
local function end_lease(job, t, finished)
  redis.call('HINCRBY', backend_key(job.backend), 'ended', 1)
  if not finished then
    redis.call('HINCRBY', backend_key(job.backend), 'unfinished', 1)
  end
  t.inflight = t.inflight - 1
  write_tenant(t)
  if t.limited then
    place(t)
  end
  wake('room')
end

-- The history with one more line: "n backend started ended outcome status".
local function attempt_ended(job, outcome, status)
  return (job.attempts or '') .. job.tries .. ' ' .. job.backend .. ' ' .. job.started .. ' ' .. now .. ' ' .. outcome .. ' '
         .. (status or '') .. '\n'
end

-- The lease of a job that got its outcome while it ran has ended: only now may its hash go. Returns the state.
local function retire(job)
  redis.call('HSET', job_key(job.id), 'attempts', attempt_ended(job, job.state))
  redis.call('PEXPIRE', job_key(job.id), pool.result_ttl_ms)
  return job.state
end
