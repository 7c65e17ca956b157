-- A waiting job changes its tier: its age and its place among the tenant's jobs stay.
-- include: return

local function change_tier(job, tier)
  if job.state == 'queued' and job.tier ~= tier then
    local t = tenant_of(job.tenant)
    withdraw(job, t)
    job.tier = tier
    rejoin(job, t)
  end
  job.tier = tier
  write_spec(job)
end
