-- Hands a job back unrun (drain, refused connection): it waits again at its old place, its attempt does not count and
-- its tenant gets the turn back. What it had said is gone: it begins anew. For a job that was cancelled while it ran: ends
-- the lease. Repeated, changes nothing.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, token
-- returns  the job's state
-- errors   NOTFOUND; LOST the lease ended, another may hold the job
-- events   none; PUBLISH wake
-- cost     O(log N)
-- include: lease return

local job, held = claim(ARGV[2], ARGV[3])
if not job.state then
  return refuse(job)
end
if not held then -- a lease that was lost has another token: this one was ended by its own holder before
  return job.token == ARGV[3] and job.state or redis.error_reply('LOST ' .. job.state)
end

local t = tenant_of(job.tenant)
if not FROM.release[job.state] then
  charge_time(job, t)
  end_lease(job, t, false)
  write_ends()
  return retire(job)
end
refund(job, t)
end_lease(job, t, false)
redis.call('HINCRBY', job_key(job.id), 'tries', -1)
redis.call('UNLINK', chunks_key(job.id))
wait_again(job, t)
rejoin(job, t)
write_ends()
return 'queued'
