-- Opens the next chunk of a run that moves jobs to other pools, forth or back: what follows touches other slots, and is told by
-- record_run.lua. Whoever comes after a crash opens the same chunk, and learns that it was open.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id
-- returns  the run's state | '' if there is no such run, the chunk, 1 if it was open | 0, its text, then of each job of a chunk that goes
--          forth: state | '', tenant, tier, code of the pool that it went to, 1 if it is of a batch | 0
-- errors   none
-- events   none; PUBLISH none
-- cost     O(100)
-- include: job run

local run = load_run(ARGV[2], 'step', 'begun', 'back')
local back = run.state == 'undoing'
local chunk = back and run.back or not back and run.step or '0'
if run.state ~= 'applying' and run.state ~= 'stopping' and not back then
  return {run.state or '', chunk, 0, ''}
end
if not back and run.state == 'applying' and run.begun ~= chunk then
  redis.call('HSET', run_key(run.id), 'begun', chunk)
end
local reply = {run.state, chunk, run.begun == chunk and 1 or 0, redis.call('HGET', run_jobs_key(run.id), chunk) or ''}
for id in string.gmatch(back and '' or reply[4], '%S+') do
  local job = load_job(id, 'state', 'spec', 'moved_to', 'batch')
  for _, value in ipairs({job.state or '', job.tenant or '', job.tier or '', job.moved_to or '', job.batch and 1 or 0}) do
    reply[#reply + 1] = value
  end
end
return reply
