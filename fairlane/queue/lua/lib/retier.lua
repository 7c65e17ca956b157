-- Many waiting jobs leave their lines, or change their tier: age and place among the tenant's jobs stay. What jobs of one line have
-- in common is done once for all of them. A job may be named once.
-- include: return

-- place(tier, tenant, job) puts a queued job into its line (by = 1) or takes it out (by = -1).
local function each_line(jobs, by, place)
  local lines, named = {}, {}
  for _, job in ipairs(jobs) do
    local name = job.tier .. ' ' .. job.tenant
    if not named[name] then
      named[name] = {}
      lines[#lines + 1] = named[name]
    end
    table.insert(named[name], job)
  end
  for _, line in ipairs(lines) do
    local tier, t = line[1].tier, tenant_of(line[1].tenant)
    local before = line_front(tier, t.name)
    for _, job in ipairs(line) do
      place(tier, t.name, job)
    end
    queued_by(tier, by * #line)
    reseat(tier, t, before, (line_front(tier, t.name)))
  end
end

local function withdraw_all(queued)
  each_line(queued, -1, function(tier, tenant, job) line_remove(tier, tenant, job.seq, job.id) end)
end

-- jobs: queued or delayed, none of them in that tier yet.
local function change_tiers(jobs, to)
  local queued = {}
  for _, job in ipairs(jobs) do
    if job.state == 'queued' then
      queued[#queued + 1] = job
    end
  end
  withdraw_all(queued)
  for _, job in ipairs(queued) do
    note_moved(job.tier, -1)
  end
  if queued[1] then
    note_moved(to, #queued)
  end
  for _, job in ipairs(jobs) do
    job.tier = to
    write_spec(job)
  end
  each_line(queued, 1, function(tier, tenant, job) redis.call('ZADD', rejoin_key(tier, tenant), job.seq, job.id) end)
end
