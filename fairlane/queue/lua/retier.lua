-- Moves up to 100 waiting jobs to another tier of their pool, each on its own; ages and order are kept.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', tier, ids…
-- returns  a word a job: ok | the refusal's code and state | TIER tier
-- errors   none
-- events   none; PUBLISH wake
-- cost     O(log N) a job
-- include: retier

local tier = ARGV[2]
local words, movers, known = {}, {}, {}
for a = 3, #ARGV do
  local job = known[ARGV[a]] or load_job(ARGV[a], 'state', 'spec')
  if not FROM.retier[job.state] then
    words[#words + 1] = refusal(job)
  elseif not is_tier(tier) then
    words[#words + 1] = 'TIER ' .. tier
  else
    if job.tier ~= tier and not known[job.id] then
      movers[#movers + 1] = job
    end
    words[#words + 1] = 'ok'
  end
  known[ARGV[a]] = job
end
change_tiers(movers, tier)
return words
