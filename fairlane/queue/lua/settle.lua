-- Writes the outcome of a leased job, once, and ends the lease. Repeated with the same token it changes nothing.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, token, succeeded | failed, status | '', result | '', error (JSON) | '', input | '', output | ''
-- returns  the job's state; one that was cancelled while it ran stays so
-- errors   NOTFOUND; LOST the lease ended, another may hold the job
-- events   settled, one entry in `events`; PUBLISH settled:<id>, wake
-- cost     O(log N)
-- include: lease outcome

local state, status, result, failure, input, output = unpack(ARGV, 4, 9)
local job, held = claim(ARGV[2], ARGV[3])
if not job.state then
  return refuse(job)
end
if not held then
  -- Only what waits can expire: a lease never settled that.
  local repeated = job.token == ARGV[3] and FINISHED[job.state] and job.state ~= 'expired'
  return repeated and job.state or redis.error_reply('LOST ' .. job.state)
end

local t = tenant_of(job.tenant)
if input ~= '' then
  charge_usage(job, t, input, output)
end
end_lease(job, t, true)
if not FROM.settle[job.state] then -- cancelled while it ran: that outcome stands
  return retire(job)
end
if input ~= '' then
  redis.call('HSET', job_key(job.id), 'usage', input .. ' ' .. output)
end
conclude(job, state, false, attempt_ended(job, state, status), status, result, failure)
return state
