-- The one final write of a job's outcome, with everything that follows from it in the same step: retention, the index
-- of finished jobs, the event for webhooks and batches, and the word to those who wait.
-- include: pool job

-- job: id, tenant, deadline, batch. keep: a lease still counts for it, so that its hash must stay until that ends.
-- What is '' or nil of attempts, status, result and failure (the error as JSON) is left out.
local function conclude(job, state, keep, attempts, status, result, failure)
  if job.deadline then
    redis.call('ZREM', deadlines_key, job.id)
  end
  local fields = {'state', state, 'ended', now}
  local function set(name, value)
    if value and value ~= '' then
      fields[#fields + 1], fields[#fields + 2] = name, value
    end
  end
  set('attempts', attempts)
  set('status', status)
  set('result', result)
  set('error', failure)
  redis.call('HSET', job_key(job.id), unpack(fields))
  if not keep then
    redis.call('PEXPIRE', job_key(job.id), pool.result_ttl_ms)
  end
  redis.call('ZADD', done_key, now, job.id)
  redis.call('XADD', events_key, '*', 'job', job.id, 'state', state, 'tenant', job.tenant, 'batch', job.batch or '')
  redis.call('PUBLISH', settled_key(job.id), state)
end

-- The job has used up its attempts: kept longer, listed, and requeueable.
local function bury(job, attempts, status, result, failure)
  conclude(job, 'failed', true, attempts, status, result, failure)
  redis.call('HSET', job_key(job.id), 'dead', 1)
  redis.call('PEXPIRE', job_key(job.id), redis.call('HGET', pool_key, 'dead_ttl_ms'))
  redis.call('ZADD', dead_key, now, job.id)
end
