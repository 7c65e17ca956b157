-- The job's hash. Fields: state spec head body [due deadline batch created prefix inbox] [was hop moved_to]
-- [tries token lease("backend started charged holder") attempts] [ended status result error usage dead collected(by its batch)]
-- [hook(was submitted with a webhook) untold(the event whose webhooks were not made yet)]
-- spec: "tenant tier seq at(submit) boost input output(token estimates) max(attempts)". In one field, since each field of
-- its own costs 60 bytes and the time to pass it on.
-- include: hash time

local AWAITED_MS = 604800000 -- a finished job of which somebody has yet to take the outcome

local function read_spec(spec)
  return string.match(spec, '^(%S+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
end

local function write_spec(job)
  redis.call('HSET', job_key(job.id), 'spec', table.concat(
    {job.tenant, job.tier, job.seq, job.at, job.boost, job.input, job.output, job.max}, ' '))
end

-- The named fields; with `spec` all that it holds.
local function load_job(id, ...)
  local job = read(job_key(id), ...)
  job.id = id
  if job.spec then
    job.tenant, job.tier, job.seq, job.at, job.boost, job.input, job.output, job.max = read_spec(job.spec)
  end
  return job
end

local FINISHED = {succeeded = true, failed = true, cancelled = true, expired = true}

-- Why an act is refused that the job's state does not allow. `ELSEWHERE` tells the caller which pool to ask instead.
local function refusal(job)
  if not job.state then
    return 'NOTFOUND no such job'
  end
  if job.state == 'moving' or job.state == 'moved' then
    return 'ELSEWHERE ' .. job.state .. ' ' .. redis.call('HGET', job_key(job.id), 'moved_to')
  end
  return 'ILLEGAL ' .. job.state
end

local function refuse(job)
  return redis.error_reply(refusal(job))
end
