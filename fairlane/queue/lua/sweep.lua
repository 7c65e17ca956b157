-- The three clocks: ends leases that were not renewed, puts due jobs in line, expires what waited beyond its deadline.
-- Also lets held tenants go, trims the indexes, and names the moves to be looked at.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', most of each kind
-- returns  {lost, due, expired, 1 if there is more to do now | 0, {ids of moves to look at}, when the next is due | ''}
-- errors   none
-- events   settled for the dead and the expired, one entry each in `events`; PUBLISH settled:<id>, wake
-- cost     O(most · log N)
-- include: drain lease outcome return trim

local most = tonumber(ARGV[2])

local function past(key)
  return redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, most)
end

local VANISHED = '{"code":"lease_lost","message":"The dispatcher that ran it vanished, at each of its attempts."}'

-- A leased job whose dispatcher fell silent.
local function lose(job, t)
  local attempts = attempt_ended(job, 'lost')
  redis.call('HINCRBY', job_key(job.id), 'token', 1) -- fences the silent one, whatever becomes of the job
  if tonumber(job.tries) >= tonumber(job.max) then
    bury(job, {attempts = attempts, error = VANISHED})
  elseif job.deadline and tonumber(job.deadline) <= now then
    expire(job, attempts)
  else
    redis.call('HSET', job_key(job.id), 'attempts', attempts)
    wait_again(job, t)
    rejoin(job, t)
  end
end

local lost = past(leases_key)
for _, id in ipairs(lost) do
  local job = load_lease(id)
  redis.call('ZREM', leases_key, id)
  if job.state then -- else somebody deleted its hash by hand
    local t = tenant_of(job.tenant)
    end_lease(job, t, false)
    if FROM.lose[job.state] then
      lose(job, t)
    else
      retire(job) -- cancelled while it ran, and never released
    end
  end
end

-- Before `due`: what is past its deadline must not become runnable first.
local late = past(deadlines_key)
for _, id in ipairs(late) do
  local job = load_lease(id)
  redis.call('ZREM', deadlines_key, id)
  if FROM.expire[job.state] then
    stop_waiting(job, tenant_of(job.tenant))
    expire(job)
  end
end

local due = past(due_key)
for _, id in ipairs(due) do
  local job = load_job(id, 'state', 'spec')
  redis.call('ZREM', due_key, id)
  redis.call('HINCRBY', pool_key, 'waiting', -1)
  if FROM.wake[job.state] then
    rejoin(job, tenant_of(job.tenant))
  end
end

local held = past(held_key)
for _, tenant in ipairs(held) do
  place(tenant_of(tenant))
end
local moves = past(moves_key)
write_ends()
trim(most)

local next_at = math.huge
for _, key in ipairs({leases_key, due_key, deadlines_key, held_key, moves_key}) do
  next_at = math.min(next_at, redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or math.huge)
end
local more = math.max(#lost, #late, #due, #held, #moves) == most
return {#lost, #due, #late, more and 1 or 0, moves, next_at < math.huge and int(next_at) or ''}
