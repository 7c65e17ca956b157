-- Writes the outcomes of up to 100 leased jobs, each on its own and once, and ends their leases. Repeated with the same
-- token it changes nothing.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', then 8 a lease: id, token, succeeded | failed, status | '', result | '', error (JSON) | '',
--          input | '', output | ''
-- returns  a word a lease: the job's state (one that was cancelled while it ran stays so) | NOTFOUND … |
--          LOST <state>: the lease ended, another may hold the job
-- errors   none
-- events   settled, one entry in `events` each; PUBLISH settled:<id>, wake
-- cost     O(log N) a lease
-- include: lease outcome class

local STRIDE = 8
local words = {}

local function settle(id, token, state, status, result, failure, input, output)
  local job, held = claim(id, token)
  if not job.state then
    return refusal(job)
  end
  if not held then
    -- Only what waits can expire: a lease never settled that.
    local repeated = job.token == token and FINISHED[job.state] and job.state ~= 'expired'
    return repeated and job.state or 'LOST ' .. job.state
  end
  local t, usage = tenant_of(job.tenant), ''
  if input ~= '' then
    charge_usage(job, t, input, output)
    usage = input .. ' ' .. output
  elseif state == 'failed' then
    charge_time(job, t)
  end
  if state == 'succeeded' then
    learn(job, input, output)
  end
  if state == 'failed' then -- what the backend could not do is tried again (retry): it refused this
    one_more(rejected, job.backend)
  end
  end_lease(job, t, state == 'succeeded')
  if not FROM.settle[job.state] then -- cancelled while it ran: that outcome stands
    return retire(job)
  end
  local attempts = attempt_ended(job, state, status)
  conclude(job, state, false, {attempts = attempts, status = status, result = result, error = failure, usage = usage}, true)
  return state
end

for a = 2, #ARGV, STRIDE do
  words[#words + 1] = settle(unpack(ARGV, a, a + STRIDE - 1))
end
write_ends()
write_stats()
return words
