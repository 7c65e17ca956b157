-- A job that was leased, delayed or elsewhere goes back to its old place in its line.
-- include: ring

-- `n` queued jobs came into a tier from another tier or pool (negative: left it so). They did not arrive there.
local function note_moved(tier, n)
  redis.call('HINCRBY', pool_key, 'moved:' .. tier, n)
end

local function queued_by(tier, by)
  redis.call('HINCRBY', pool_key, 'waiting', by)
  redis.call('HINCRBY', pool_key, 'waiting:' .. tier, by)
end

local function rejoin(job, t)
  local before = line_front(job.tier, t.name)
  redis.call('ZADD', rejoin_key(job.tier, t.name), job.seq, job.id)
  redis.call('HSET', job_key(job.id), 'state', 'queued')
  queued_by(job.tier, 1)
  reseat(job.tier, t, before, (line_front(job.tier, t.name)))
end

-- Puts a job off until `due`.
local function delay(job, due)
  redis.call('HSET', job_key(job.id), 'state', 'delayed', 'due', due)
  redis.call('ZADD', due_key, due, job.id)
  redis.call('HINCRBY', pool_key, 'waiting', 1)
end

-- A job that was leased or elsewhere waits again: it counts for its tenant, and its deadline runs on.
local function wait_again(job, t)
  count(t, 1, 0)
  if job.deadline then
    redis.call('ZADD', deadlines_key, job.deadline, job.id)
  end
end

-- A waiting job, queued or delayed, leaves its place.
local function withdraw(job, t)
  if job.state == 'queued' then
    local before = line_front(job.tier, t.name)
    line_remove(job.tier, t.name, job.seq, job.id)
    queued_by(job.tier, -1)
    reseat(job.tier, t, before, (line_front(job.tier, t.name)))
  else
    redis.call('ZREM', due_key, job.id)
    redis.call('HINCRBY', pool_key, 'waiting', -1)
  end
end

-- … and stops waiting.
local function stop_waiting(job, t)
  withdraw(job, t)
  count(t, -1, 0)
end
