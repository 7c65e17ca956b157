-- First step of a move to another pool: takes a waiting job off its line and returns all of it for the copy.
-- Repeated, it returns the same again. If it comes back one day, it takes its old place. The sweeper finishes a move that broke off.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, code of the target | '' to go on with a move under way, ms after which the sweeper takes the
--          move over, tiers of the target: ' a b … '
-- returns  the code of the pool it really goes to, then the hash's names and values
-- errors   NOTFOUND; ELSEWHERE; TIER the target has no such tier; ILLEGAL <state>; BATCH jobs of a batch change tier only
-- events   none; PUBLISH none
-- cost     O(log N)
-- include: return

local id, target = ARGV[2], ARGV[3]
local key = job_key(id)
local job = load_job(id, 'state', 'spec', 'deadline', 'batch', 'moved_to')
if job.batch then
  return redis.error_reply('BATCH a job of a batch stays in its pool')
end
if job.state ~= 'moving' then
  if string.find(KEYS[1], '{' .. target .. '}', 1, true) then
    return redis.error_reply('ILLEGAL ' .. (job.state or 'gone'))
  end
  if target == '' or not FROM.depart[job.state] then
    return refuse(job)
  end
  if not string.find(ARGV[5], ' ' .. job.tier .. ' ', 1, true) then
    return redis.error_reply('TIER ' .. job.tier)
  end
  local t = tenant_of(job.tenant)
  stop_waiting(job, t)
  if job.state == 'queued' then
    note_moved(job.tier, -1)
  end
  write_tenants()
  if t.hooks then -- the target need not know that
    redis.call('HSET', key, 'hook', 1)
  end
  redis.call('ZREM', deadlines_key, id)
  redis.call('HSET', key, 'state', 'moving', 'was', job.state, 'moved_to', target)
  redis.call('HINCRBY', key, 'hop', 1)
  redis.call('HSET', key, 'place:' .. string.match(KEYS[1], '{(.-)}'), job.seq)
  redis.call('ZADD', moves_key, now + ARGV[4], id)
end
return {job.moved_to or target, redis.call('HGETALL', key)}
