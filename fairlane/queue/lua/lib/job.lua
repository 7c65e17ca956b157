-- The job's hash. Fields: state tenant tier seq at(submit) boost input output(token estimates) max(attempts) head body
-- [due deadline batch created] [was hop moved_to] [tries token lease("backend started charged holder") attempts]
-- [ended status result error usage dead]
-- include: hash

local function load_job(id, ...)
  local job = read(job_key(id), ...)
  job.id = id
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
