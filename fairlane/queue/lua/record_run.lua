-- Tells what became of an open chunk of a run that moves jobs to other pools, forth or back, and closes it.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, forth | back, the chunk: one that was closed already is not closed again, what undoes it ('id code …'),
--          then names and how many
-- returns  the run's state after it | '' if there is no such run
-- errors   none
-- events   none; PUBLISH none
-- cost     O(1)
-- include: run

local id, forth, chunk = ARGV[2], ARGV[3] == 'forth', ARGV[4]
local run = load_run(id, 'chosen', 'step', 'back')
local open = forth and (run.state == 'applying' or run.state == 'stopping') or not forth and run.state == 'undoing'
if not open or ((forth and run.step or not forth and run.back) or '0') ~= chunk then
  return run.state or ''
end
local counts = {}
for a = 6, #ARGV, 2 do
  counts[ARGV[a]] = ARGV[a + 1]
end
redis.call('HSET', run_key(id), forth and 'step' or 'back', chunk + 1, 'stepped', int(now))
tally_run(run, counts)
if forth then
  redis.call('HSET', run_jobs_key(id), chunk, ARGV[5])
  local all = chunk + 1 >= chunks_of(run)
  turn_run(run, all and 'done' or run.state == 'stopping' and 'aborted' or 'applying')
else
  turn_run(run, chunk + 1 >= tonumber(run.step or 0) and 'undone' or 'undoing')
end
return run.state
