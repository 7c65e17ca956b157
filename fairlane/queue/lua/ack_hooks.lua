-- The webhooks of these outcomes were made: their events are done, and their jobs are kept no longer than others.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', then 2 each: event, job
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N) each
-- include: drain pool job

for a = 2, #ARGV, 2 do
  redis.call('XACK', events_key, 'webhooks', ARGV[a])
  local job = load_job(ARGV[a + 1], 'state', 'dead', 'untold')
  if job.untold == ARGV[a] then -- a job that was requeued may have another outcome by now
    redis.call('HDEL', job_key(job.id), 'untold')
    if FINISHED[job.state] and not redis.call('ZSCORE', leases_key, job.id) then
      redis.call('PEXPIRE', job_key(job.id), job.dead and pool.dead_ttl_ms or pool.result_ttl_ms)
    end
  end
end
