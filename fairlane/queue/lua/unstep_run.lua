-- One step back of a run within its pool: those of a chunk that wait yet in the tier that it gave them get their old one.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, the chunk: a step that was done already is not done again
-- returns  the run's state after it | '' if there is no such run
-- errors   none
-- events   none; PUBLISH wake
-- cost     O(100 · log N)
-- include: retier run

local run = load_run(ARGV[2], 'to', 'step', 'back')
local back = run.back or '0'
if run.state ~= 'undoing' or back ~= ARGV[3] then
  return run.state or ''
end
redis.call('HSET', run_key(run.id), 'stepped', int(now)) -- what a full Redis refuses it refuses here
local movers, counts = {}, {} -- movers: by the tier that they go back to

local function why_not(job, tier)
  if not FROM.retier[job.state] then
    return where_is(job)
  elseif job.tier ~= run.to then
    return 'elsewhere'
  elseif not is_tier(tier) then
    return 'no_tier'
  end
end

for id, tier in string.gmatch(redis.call('HGET', run_jobs_key(run.id), back) or '', '(%S+) (%S+)') do
  local job = load_job(id, 'state', 'spec')
  local why = why_not(job, tier)
  one_more_of(counts, why and 'kept:' .. why or 'returned')
  if not why then
    movers[tier] = movers[tier] or {}
    table.insert(movers[tier], job)
  end
end
for tier, jobs in pairs(movers) do
  change_tiers(jobs, tier)
end
redis.call('HSET', run_key(run.id), 'back', back + 1)
tally_run(run, counts)
turn_run(run, back + 1 >= tonumber(run.step or 0) and 'undone' or 'undoing')
return run.state
