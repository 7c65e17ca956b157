-- One step of a run within its pool: a chunk of its jobs changes tier or is cancelled, and what undoes that is kept, all at once.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, the chunk: a step that was done already is not done again
-- returns  the run's state after it | '' if there is no such run
-- errors   none
-- events   purge: settled, an entry a job in `events`; PUBLISH wake, settled:<id>
-- cost     O(100 · log N)
-- include: lease cancel run

local run = load_run(ARGV[2], 'act', 'to', 'step', 'chosen')
local step = run.step or '0'
if run.state ~= 'applying' or step ~= ARGV[3] then
  return run.state or ''
end
if run.act == 'purge' then -- it makes room where there is none
  redis.call('DEL', nothing_key)
end
redis.call('HSET', run_key(run.id), 'stepped', int(now)) -- what a full Redis refuses it refuses here
local movers, undo, counts, known = {}, {}, {}, {}

local function why_not(job)
  if not FROM.retier[job.state] then
    return where_is(job)
  elseif run.act == 'retier' and not is_tier(run.to) then
    return 'no_tier'
  elseif known[job.id] or run.act == 'retier' and job.tier == run.to then
    return 'already'
  end
end

for id in string.gmatch(redis.call('HGET', run_jobs_key(run.id), step) or '', '%S+') do
  local job = run.act == 'purge' and load_lease(id) or load_job(id, 'state', 'spec')
  local why = why_not(job)
  one_more_of(counts, why and 'skipped:' .. why or 'moved')
  if not why then
    known[id] = true
    movers[#movers + 1], undo[#undo + 1] = job, id .. ' ' .. job.tier
  end
end
if run.act == 'purge' then
  undo = {}
  cancel_all(movers)
else
  change_tiers(movers, run.to)
end
redis.call('HSET', run_jobs_key(run.id), step, table.concat(undo, ' '))
redis.call('HSET', run_key(run.id), 'step', step + 1)
tally_run(run, counts)
write_tenants()
turn_run(run, step + 1 >= chunks_of(run) and 'done' or 'applying')
return run.state
