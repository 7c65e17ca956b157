-- One step of a run's choice: walks on over the lines, the highest tier and the tenant that waits longest first, then over the delayed
-- jobs, and keeps what it chooses with where it is, all at once.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id
-- returns  the run's state after it: counting, or weighing if it has them all | '' if there is no such run
-- errors   none
-- events   none; PUBLISH none
-- cost     O(250 · log N)
-- include: choice

local LOOKED_MOST = 250
local run = load_run(ARGV[2])
if run.state ~= 'counting' then
  return run.state or ''
end
run = load_choice(run.id)
if run.act == 'purge' then -- it makes room where there is none
  redis.call('DEL', nothing_key)
end
local tiers, done = {}, false
for tier in string.gmatch(run.tiers, '%S+') do
  tiers[#tiers + 1] = tier
end
while not done and run.looked < LOOKED_MOST and run.chosen < run.most do
  run.looked = run.looked + 1
  local tier = tiers[run.at]
  if not tier then
    done = not walk_delayed(run)
  elseif run.line ~= '' then
    walk_line(run, tier, LOOKED_MOST)
  else
    run.line = next_line(run, tier)
    if not run.line then
      run.at, run.after, run.line = run.at + 1, '', ''
    end
  end
end
if #run.chunk > 0 then
  redis.call('HSET', run_jobs_key(run.id), math.floor(run.chosen / CHUNK), table.concat(run.chunk, ' '))
end
redis.call('HSET', run_key(run.id), 'chosen', run.chosen, 'at', run.at, 'after', run.after, 'line', run.line, 'seq', int(run.seq),
           'stepped', int(now))
redis.call('PEXPIRE', run_lines_key(run.id), CHOICE_MS)
tally_run(run, run.counts)
turn_run(run, (done or run.chosen >= run.most) and 'weighing' or 'counting')
return run.state
