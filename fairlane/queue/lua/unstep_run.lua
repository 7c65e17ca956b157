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
local counts = {}

local function give_back(id, tier)
  local job = load_job(id, 'state', 'spec')
  if not FROM.retier[job.state] then
    return 'kept:' .. where_is(job)
  elseif job.tier ~= run.to then
    return 'kept:elsewhere'
  elseif not is_tier(tier) then
    return 'kept:no_tier'
  end
  change_tier(job, tier)
  return 'returned'
end

for id, tier in string.gmatch(redis.call('HGET', run_jobs_key(run.id), back) or '', '(%S+) (%S+)') do
  one_more_of(counts, give_back(id, tier))
end
redis.call('HSET', run_key(run.id), 'back', back + 1)
tally_run(run, counts)
turn_run(run, back + 1 >= tonumber(run.step or 0) and 'undone' or 'undoing')
return run.state
