-- Forgets jobs of batches whose outcomes were collected, with all that they take, and acknowledges their events. Of one
-- that a lease still counts for only what is large goes, the rest soon after that lease (lib/lease.lua). Their idempotency keys live on for a moment, lest somebody who
-- is late submits them again.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', then 3 a job: its event | '', id | '', digest of its idempotency key | ''
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N) a job
-- include: drain job
local KEPT_MS = 30000
for a = 2, #ARGV, 3 do
  local id = ARGV[a + 1]
  local job = load_job(id, 'state', 'spec')
  if FINISHED[job.state] then
    if ARGV[a + 2] ~= '' then
      redis.call('PEXPIRE', idem_key(job.tenant, ARGV[a + 2]), KEPT_MS)
    end
    if redis.call('ZSCORE', leases_key, id) then
      redis.call('HDEL', job_key(id), 'body', 'result')
      redis.call('HSET', job_key(id), 'collected', 1)
    else
      redis.call('DEL', job_key(id))
    end
    redis.call('ZREM', done_key, id)
    redis.call('ZREM', dead_key, id)
  end
  if ARGV[a] ~= '' then
    redis.call('XACK', events_key, 'batches', ARGV[a])
  end
end
