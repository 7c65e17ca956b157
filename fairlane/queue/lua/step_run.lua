-- One step of a run within its pool: a chunk of its jobs changes tier or is cancelled, and what undoes that is kept, all at once.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, the chunk: a step that was done already is not done again
-- returns  the run's state after it | '' if there is no such run
-- errors   none
-- events   purge: settled, an entry a job in `events`; PUBLISH wake, settled:<id>
-- cost     O(100 · log N)
-- include: lease outcome retier run

local run = load_run(ARGV[2], 'act', 'to', 'step', 'chosen')
local step = run.step or '0'
if run.state ~= 'applying' or step ~= ARGV[3] then
  return run.state or ''
end
if run.act == 'purge' then -- it makes room where there is none
  redis.call('DEL', nothing_key)
end
redis.call('HSET', run_key(run.id), 'stepped', int(now)) -- what a full Redis refuses it refuses here
local undo, counts = {}, {}

local function take(id)
  local job = load_job(id, 'state', 'spec')
  if not FROM.retier[job.state] then
    return 'skipped:' .. where_is(job)
  elseif run.act == 'purge' then
    job = load_lease(id)
    stop_waiting(job, tenant_of(job.tenant))
    conclude(job, 'cancelled')
    return 'moved'
  elseif not is_tier(run.to) then
    return 'skipped:no_tier'
  elseif job.tier == run.to then
    return 'skipped:already'
  end
  undo[#undo + 1] = id .. ' ' .. job.tier
  change_tier(job, run.to)
  return 'moved'
end

for id in string.gmatch(redis.call('HGET', run_jobs_key(run.id), step) or '', '%S+') do
  one_more_of(counts, take(id))
end
redis.call('HSET', run_jobs_key(run.id), step, table.concat(undo, ' '))
redis.call('HSET', run_key(run.id), 'step', step + 1)
tally_run(run, counts)
write_tenants()
turn_run(run, step + 1 >= chunks_of(run) and 'done' or 'applying')
return run.state
