-- Second step of a move: the copy, in the target pool, with its old age, at the end of its line; or at its old place, if it
-- has waited here before (depart.lua).
-- Repeated, or late, it changes nothing: a copy counts its hops.
-- A job whose tier was taken away meanwhile comes into the lowest: it must not be lost.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, hop, then the hash's names and values
-- returns  1 if the job arrived now, 0 if it had been here before
-- errors   none
-- events   none; PUBLISH wake
-- cost     O(log N)
-- include: return hooks

local id, hop = ARGV[2], tonumber(ARGV[3])
local here = load_job(id, 'state', 'hop')
-- What is `moving` here with fewer hops has been where this copy comes from: its third step is late.
local passed = here.state == 'moved' or here.state == 'moving'
if here.state and (not passed or (tonumber(here.hop) or 0) >= hop) then
  return 0
end
redis.call('DEL', job_key(id))
redis.call('ZREM', moves_key, id)
redis.call('HSET', job_key(id), unpack(ARGV, 4))
local job = load_job(id, 'spec', 'deadline', 'due', 'was', 'hook')
if job.hook then
  join_hooks()
end
job.seq = redis.call('HGET', job_key(id), 'place:' .. string.match(KEYS[1], '{(.-)}'))
          or int(redis.call('HINCRBY', pool_key, 'seq', 1))
job.tier = is_tier(job.tier) and job.tier or tiers()[#tiers()]
write_spec(job)
redis.call('HDEL', job_key(id), 'moved_to', 'was')
local t = tenant_of(job.tenant)
wait_again(job, t)
if job.was == 'delayed' then
  delay(job, job.due)
else
  rejoin(job, t)
  note_moved(job.tier, 1)
end
write_tenants()
return 1
