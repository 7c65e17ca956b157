-- How a run makes its choice: a walk over the lines and then over the delayed jobs, a part of it in each call (count_run.lua).
-- include: run walk

-- The walk as the last call left it.
local function load_choice(id)
  local run = load_run(id, 'act', 'tenant', 'tiers', 'bound', 'before', 'most', 'created', 'chosen', 'at', 'after', 'line', 'seq')
  for name, default in pairs({bound = 0, before = 0, most = 0, created = 0, chosen = 0, at = 1, seq = 0}) do
    run[name] = tonumber(run[name]) or default
  end
  run.after, run.line, run.looked, run.counts, run.chunk = run.after or '', run.line or '', 0, {}, {}
  if run.chosen % CHUNK > 0 then -- the last chunk goes on
    for job in string.gmatch(redis.call('HGET', run_jobs_key(id), math.floor(run.chosen / CHUNK)), '%S+') do
      run.chunk[#run.chunk + 1] = job
    end
  end
  return run
end

-- Takes a job into the choice: 1, or 0 if it cannot be moved.
local function choose(run, id, batch)
  if run.act == 'move' and batch then
    one_more_of(run.counts, 'skipped:batch')
    return 0
  end
  run.chosen, run.chunk[#run.chunk + 1] = run.chosen + 1, id
  if #run.chunk == CHUNK then
    redis.call('HSET', run_jobs_key(run.id), run.chosen / CHUNK - 1, table.concat(run.chunk, ' '))
    run.chunk = {}
  end
  return 1
end

-- The next tenant of a tier, nil at the end, '' if there may be more. Heads only grow younger while lines move on: whoever changes its
-- place meanwhile comes later, and a line that was walked is not walked again.
local function next_line(run, tier)
  if run.tenant ~= '' then
    return run.after == '' and run.tenant or nil
  end
  local found = after_in(oldest_key(tier), run.after, 50)
  for i = 1, #found, 2 do
    run.looked = run.looked + 1
    if tonumber(found[i + 1]) > run.created then
      return nil
    end
    run.after = found[i + 1] .. ' ' .. found[i]
    if redis.call('HEXISTS', run_lines_key(run.id), tier .. ' ' .. found[i]) == 0 then
      return found[i]
    end
  end
  return #found > 0 and '' or nil
end

local function walk_line(run, tier, most_looked)
  local n = math.max(1, math.min(most_looked - run.looked, run.most - run.chosen))
  local jobs, chosen = line_after(tier, run.line, run.seq, run.bound, n), 0
  for _, job in ipairs(jobs) do
    run.looked, run.seq = run.looked + 1, job.seq
    if job.at <= run.before then
      chosen = chosen + choose(run, job.id, run.act == 'move' and redis.call('HEXISTS', job_key(job.id), 'batch') == 1)
    end
  end
  redis.call('HINCRBY', run_lines_key(run.id), tier .. ' ' .. run.line, chosen)
  if #jobs < n then
    run.after = run.after == '' and '0 ' .. run.line or run.after
    run.line, run.seq = '', 0
  end
end

-- Delayed jobs of the same tenants and tiers; false at the end.
local function walk_delayed(run)
  local found = after_in(due_key, run.after, 100)
  for i = 1, #found, 2 do
    run.after, run.looked = found[i + 1] .. ' ' .. found[i], run.looked + 1
    local job = load_job(found[i], 'spec', 'batch')
    local ours = job.spec and (run.tenant == '' or run.tenant == job.tenant)
    if ours and string.find(' ' .. run.tiers .. ' ', ' ' .. job.tier .. ' ', 1, true) and run.chosen < run.most
       and tonumber(job.seq) <= run.bound and tonumber(job.at) <= run.before and choose(run, job.id, job.batch) == 1 then
      one_more_of(run.counts, 'delayed')
    end
  end
  return #found > 0
end
