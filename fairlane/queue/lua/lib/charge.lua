-- What a turn really cost, when it is known only afterwards.
-- include: ring

-- Corrects the tenant's virtual time by `by`, in the ring or in `left`, whichever holds it. Who has been away would
-- come back at the clock, so the correction counts from there: a debt is kept, and absence earns nothing.
local function correct(tier, t, by)
  if by == 0 then
    return
  end
  local ring = ring_of(tier)
  if redis.call('ZSCORE', ring, t.name) then
    redis.call('ZINCRBY', ring, by, t.name)
  else
    local v = math.max(redis.call('ZSCORE', left_key(tier), t.name) or 0, redis.call('HGET', pool_key, 'clock:' .. tier) or 0)
    redis.call('ZADD', left_key(tier), v + by, t.name)
  end
end

-- Charges what the backend says it used instead of the estimate that was charged at the pop.
local function charge_usage(job, t, input, output)
  if pool.fairness == 'tokens' then
    correct(job.tier, t, turn_cost(t, input + 2 * output) - job.charged)
  end
  charge_rates(t, 0, input + output - job.input - job.output)
end

-- Gives back the whole turn: the job did not run.
local function refund(job, t)
  correct(job.tier, t, -job.charged)
  charge_rates(t, -1, -(job.input + job.output))
end
