-- Cancels a job in any state. A leased job has its outcome at once; its lease stays and counts until its dispatcher
-- releases it or it ends, because the backend works until then. A finished job is left as it is.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id
-- returns  the state that the job had, and the one that it has
-- errors   NOTFOUND; ELSEWHERE <state> <code> ask that pool (moving: finish the move first)
-- events   settled, one entry in `events`; PUBLISH settled:<id>, control
-- cost     O(log N)
-- include: drain lease outcome return

local job = load_lease(ARGV[2])
if FINISHED[job.state] then
  return {job.state, job.state}
end
if not FROM.cancel[job.state] then
  return refuse(job)
end
local was = job.state
local runs = was == 'leased'
if runs then
  redis.call('PUBLISH', control_key, 'cancel ' .. job.id)
else
  stop_waiting(job, tenant_of(job.tenant))
end
conclude(job, 'cancelled', runs)
write_tenants()
return {was, 'cancelled'}
