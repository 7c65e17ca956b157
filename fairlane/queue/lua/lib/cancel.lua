-- Cancels many waiting jobs.
-- include: outcome retier

local function cancel_all(jobs)
  local queued = {}
  for _, job in ipairs(jobs) do
    if job.state == 'queued' then
      queued[#queued + 1] = job
    else
      withdraw(job)
    end
  end
  withdraw_all(queued)
  for _, job in ipairs(jobs) do
    count(tenant_of(job.tenant), -1, 0)
    conclude(job, 'cancelled')
  end
end
