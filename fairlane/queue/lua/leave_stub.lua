-- Last step of a move: the source keeps only where the job went. Waiters are told and ask there.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, hop that was copied, ms after which the sweeper looks whether the job still exists
-- returns  1, or 0 if the job was not moving any more, or is on another move by now
-- errors   none
-- events   none; PUBLISH settled:<id>, settled:<inbox>
-- cost     O(log N)
-- include: time job

local id = ARGV[2]
local key = job_key(id)
local job = load_job(id, 'state', 'moved_to', 'hop', 'inbox')
if not FROM.leave_stub[job.state] or job.hop ~= ARGV[3] then
  return 0
end
redis.call('DEL', key)
redis.call('HSET', key, 'state', 'moved', 'moved_to', job.moved_to, 'hop', job.hop)
redis.call('ZADD', moves_key, now + ARGV[4], id)
redis.call('PUBLISH', settled_key(id), 'moved')
if job.inbox then
  redis.call('PUBLISH', settled_key(job.inbox), id .. ' 0 moved')
end
return 1
