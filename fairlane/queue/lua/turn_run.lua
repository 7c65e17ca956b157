-- Turns a run to another state, or only writes some of its fields. A run that is stopped while a chunk of moves is open goes by way of
-- `stopping`, so that what of it was moved is known. Repeated, it changes nothing.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, states that it may have: ' a b … ', new state, then names and values
-- returns  the state that it has now | '' if there is no such run
-- errors   ILLEGALRUN <state>; RUNLATE what undoes it is gone
-- events   none; PUBLISH none
-- cost     O(fields)
-- include: drain run

local to = ARGV[4]
local run = load_run(ARGV[2], 'act', 'step', 'begun', 'back')
if not run.state or run.state == to or (run.state == 'stopping' and to == 'aborted') then
  return run.state or ''
end
if not string.find(ARGV[3], ' ' .. run.state .. ' ', 1, true) then
  return redis.error_reply('ILLEGALRUN ' .. run.state)
end
if to == 'undoing' and tonumber(run.step or 0) > tonumber(run.back or 0) and redis.call('EXISTS', run_jobs_key(run.id)) == 0 then
  return redis.error_reply('RUNLATE')
end
if #ARGV > 4 then
  redis.call('HSET', run_key(run.id), unpack(ARGV, 5))
end
if to == 'aborted' and run.state == 'applying' and (run.begun or '') == (run.step or '0') then
  to = 'stopping'
end
if to == 'ready' then
  redis.call('DEL', run_lines_key(run.id))
end
turn_run(run, to)
return to
