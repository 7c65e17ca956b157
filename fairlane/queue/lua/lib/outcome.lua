-- The one final write of a job's outcome, with everything that follows from it in the same step: retention, the index
-- of finished jobs, the event for webhooks and batches, and the word to those who wait.
-- include: pool job tenant

-- Somebody is to be told of the outcome by a webhook. A batch tells of itself, not of each of its jobs.
local function is_hooked(job)
  return not job.batch and (job.hook or tenant_of(job.tenant).hooks)
end

-- How long a finished job is kept. One of a batch until it was collected, and one with a webhook until that was made from
-- it (ack_hooks.lua), even if nobody does so for days.
local function kept_ms(job, ms)
  return (job.batch or is_hooked(job)) and math.max(AWAITED_MS, ms) or ms
end

-- To those who wait for this job; and to whoever submitted it, who may listen for all of its jobs at once: "<id> <ms at
-- which it was submitted> <word>". Each may be lost.
local function announce(job, word)
  redis.call('PUBLISH', settled_key(job.id), word)
  local inbox, created = unpack(redis.call('HMGET', job_key(job.id), 'inbox', 'created'))
  if inbox then
    redis.call('PUBLISH', settled_key(inbox), table.concat({job.id, created or int(job.at), word}, ' '))
  end
end

-- job: id, tenant, tier, at (or when its last delay ended), deadline, batch; began (when its last attempt did), if it ran. keep: a lease still counts for it, so that its hash must stay until that ends.
-- more: attempts, status, result, error (JSON), usage; what is '' is left out.
-- tell: whoever waits is told all of it, if it is small, and need not read: "<tier> <name>:<length> …\n<values>".
local TOLD_MOST = 16384
local function conclude(job, state, keep, more, tell)
  if job.deadline then
    redis.call('ZREM', deadlines_key, job.id)
  end
  local fields = {'state', state, 'ended', int(now)}
  for name, value in pairs(more or {}) do
    if value ~= '' then
      fields[#fields + 1], fields[#fields + 2] = name, value
    end
  end
  redis.call('HSET', job_key(job.id), unpack(fields))
  if not keep then
    redis.call('PEXPIRE', job_key(job.id), kept_ms(job, pool.result_ttl_ms))
  end
  redis.call('ZADD', done_key, now, job.id)
  local times = table.concat({job.tier, job.at, job.began or '-', now, more and more.usage or ''}, ' ')
  local entry = {'job', job.id, 'state', state, 'tenant', job.tenant, 'batch', job.batch or '', 'times', times}
  if is_hooked(job) then
    entry[11], entry[12] = 'hook', '1'
    redis.call('HSET', job_key(job.id), 'untold', redis.call('XADD', events_key, '*', unpack(entry)))
  else
    redis.call('XADD', events_key, '*', unpack(entry))
  end
  if tell and #more.result <= TOLD_MOST then
    local names, values = job.tier, {}
    for i = 2, #fields, 2 do
      names, values[i / 2] = names .. ' ' .. fields[i - 1] .. ':' .. #fields[i], fields[i]
    end
    state = names .. '\n' .. table.concat(values)
  end
  announce(job, state)
end

local function expire(job, attempts)
  local why = '{"code":"expired","message":"It was not started before its deadline."}'
  conclude(job, 'expired', false, {attempts = attempts, error = why})
end

-- The job has used up its attempts: kept longer, listed, and requeueable.
local function bury(job, more)
  conclude(job, 'failed', true, more)
  redis.call('HSET', job_key(job.id), 'dead', 1)
  redis.call('PEXPIRE', job_key(job.id), kept_ms(job, pool.dead_ttl_ms))
  redis.call('ZADD', dead_key, now, job.id)
end
