-- Puts a dead job back to the end of its line, with all its attempts before it.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id
-- returns  the job's state
-- errors   NOTFOUND; ELSEWHERE; ILLEGAL <state>: only a dead job can be requeued; TIER its tier is gone
-- events   none; PUBLISH wake
-- cost     O(log N)
-- include: return

local job = load_job(ARGV[2], 'state', 'dead', 'spec', 'created')
if not FROM.requeue[job.state] or not job.dead then
  return refuse(job)
elseif not is_tier(job.tier) then
  return redis.error_reply('TIER ' .. job.tier)
end
redis.call('ZREM', dead_key, job.id)
redis.call('ZREM', done_key, job.id)
redis.call('PERSIST', job_key(job.id))
redis.call('HDEL', job_key(job.id), 'dead', 'ended', 'error', 'status', 'result', 'usage', 'deadline', 'due', 'untold')
job.seq = int(redis.call('HINCRBY', pool_key, 'seq', 1))
redis.call('HSET', job_key(job.id), 'created', job.created or job.at, 'tries', 0)
job.at = now
write_spec(job)
local t = tenant_of(job.tenant)
wait_again(job, t)
rejoin(job, t)
write_tenants()
return 'queued'
