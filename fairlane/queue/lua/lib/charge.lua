-- What a turn really cost, when it is known only afterwards.
-- include: ring class

-- Corrects the tenant's virtual time by `by`, in the ring or in `left`, whichever holds it. Who is in neither would come
-- back where newcomers start: a debt is kept for it from there, and absence earns nothing.
local function correct(tier, t, by)
  if by == 0 then
    return
  end
  local ring = ring_of(tier)
  if redis.call('ZSCORE', ring, t.name) then
    redis.call('ZINCRBY', ring, by, t.name)
    return
  end
  local left = redis.call('ZSCORE', left_key(tier), t.name)
  if left or by > 0 then
    redis.call('ZADD', left_key(tier), (left or start_of(tier, ring, 0)) + by, t.name)
  end
end

-- Charges what the backend says it used instead of the estimate that was charged at the pop.
local function charge_usage(job, t, input, output)
  if pool.fairness == 'tokens' then
    correct(job.tier, t, turn_cost(t, input + 2 * output) - job.charged)
  end
  charge_rates(t, 0, input + output - job.input - job.output)
end

local UNDECLARED = 16 -- a request need not say how long its answer may get: it can use many times the estimate

-- An attempt ended without a report: charges what its tier's jobs use in the time that it ran. If the backend failed
-- (it may have hung), no more than the estimate.
local function charge_time(job, t, fault)
  local work = work_of(job.tier)
  if work.n == 0 then
    return
  end
  local estimate = job.input + 2 * job.output
  local most = fault and estimate or UNDECLARED * math.max(1, estimate)
  local used = math.min(most, math.floor(math.max(0, now - job.started) * work.c / work.b))
  if pool.fairness == 'tokens' then
    correct(job.tier, t, turn_cost(t, used) - job.charged)
  end
  if estimate > 0 then
    charge_rates(t, 0, math.floor((used / estimate - 1) * (job.input + job.output)))
  end
end

-- Gives back the whole turn: the job did not run.
local function refund(job, t)
  correct(job.tier, t, -job.charged)
  charge_rates(t, -1, -(job.input + job.output))
end
