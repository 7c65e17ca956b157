-- Ends a failed attempt: the job runs again after `delay`, or, when it has used up its attempts, it is dead.
-- Repeated with the same token it changes nothing.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, token, delay ms, outcome word, status | '', result | '', error (JSON), input | '', output | '',
--          1 if it was the backend's own fault | ''
-- returns  the job's state
-- errors   NOTFOUND; LOST the lease ended, another may hold the job
-- events   when dead: settled, one entry in `events`; PUBLISH settled:<id>, wake
-- cost     O(log N)
-- include: lease outcome return

local pause, outcome, status, result, failure, input, output, fault = unpack(ARGV, 4, 11)
local job, held = claim(ARGV[2], ARGV[3])
if not job.state then
  return refuse(job)
end
if not held then -- a lease that was lost has another token: this one was ended by its own holder before
  return job.token == ARGV[3] and job.state or redis.error_reply('LOST ' .. job.state)
end

-- What becomes of the job now that its lease has ended. Returns its state.
local function go_on(t)
  if not FROM.retry[job.state] then -- cancelled while it ran: that outcome stands
    return retire(job)
  end
  local attempts = attempt_ended(job, outcome, status)
  if tonumber(job.tries) >= tonumber(job.max) then
    bury(job, {attempts = attempts, status = status, result = result, error = failure})
    return 'failed'
  end
  redis.call('HSET', job_key(job.id), 'attempts', attempts)
  wait_again(job, t)
  if tonumber(pause) == 0 then
    rejoin(job, t)
    return 'queued'
  end
  delay(job, now + pause)
  return 'delayed'
end

local t = tenant_of(job.tenant)
if input ~= '' then
  charge_usage(job, t, input, output)
else
  charge_time(job, t, fault ~= '')
end
if fault ~= '' then
  blame(job)
end
end_lease(job, t, false)
local state = go_on(t)
write_ends()
return state
