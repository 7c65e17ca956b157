-- A run: one rebalancing (fairlane/rebalance). It holds a frozen choice of waiting jobs, and what is done to them, chunk by chunk.
-- Its hash: state plan(JSON) by created turned(when it changed its state) stepped(its last step);
-- the choice: act(retier | move | purge) to(a tier) tenant tiers bound(the seq up to which) before(ms: submitted until then) most;
-- the walk over the lines: at(which of the tiers) after("score member" of the last tenant) line(the tenant) seq;
-- chosen delayed(of them); step begun(chunks: done, being done) back(chunks undone); moved skipped:<why> returned kept:<why>;
-- forecast(JSON).
-- `run_jobs` has the ids by chunk and, once that is done, what undoes it: "id tier …", or "id code …" of the pool it went to.
-- include: hash time

local CHUNK = 100
local OPEN = {counting = true, weighing = true, applying = true, stopping = true, undoing = true}
local KEPT_MS, CHOICE_MS, READY_MS = 604800000, 86400000, 3600000 -- a run; what is needed to undo it; one that waits for its word

local function load_run(id, ...)
  local run = read(run_key(id), 'state', ...)
  run.id = id
  if not run.state then -- it is past its time
    redis.call('ZREM', runs_key, id)
    redis.call('ZREM', runs_open_key, id)
  end
  return run
end

local function chunks_of(run)
  return math.ceil((tonumber(run.chosen) or 0) / CHUNK)
end

local function turn_run(run, state)
  if run.state ~= state then
    redis.call('HSET', run_key(run.id), 'state', state, 'turned', int(now))
    run.state = state
  end
  if OPEN[state] then
    redis.call('ZADD', runs_open_key, now, run.id)
  else
    redis.call('ZREM', runs_open_key, run.id)
  end
  local ready = state == 'ready' and READY_MS
  redis.call('PEXPIRE', run_key(run.id), ready or KEPT_MS)
  redis.call('PEXPIRE', run_jobs_key(run.id), ready or OPEN[state] and KEPT_MS or CHOICE_MS)
end

-- Adds to the run's numbers: name -> how many.
local function tally_run(run, counts)
  for name, n in pairs(counts) do
    redis.call('HINCRBY', run_key(run.id), name, n)
  end
end

local function one_more_of(counts, name)
  counts[name] = (counts[name] or 0) + 1
end

-- What a job is that cannot be taken along.
local function where_is(job)
  if job.state == 'moving' or job.state == 'moved' then
    return 'elsewhere'
  end
  return job.state or 'gone'
end
