-- Which jobs somebody looks for: ARGV[first…] are their states (with spaces between), '1': dead, '0': not dead | '', tier | '',
-- earliest arrival | '', latest arrival | '', tenants… (none: all).
-- include: job

local match = {}

local function read_match(first)
  match.dead, match.tier = ARGV[first + 1], ARGV[first + 2]
  match.from, match.to = tonumber(ARGV[first + 3]) or 0, tonumber(ARGV[first + 4]) or math.huge
  for state in string.gmatch(ARGV[first], '%S+') do
    match[state] = true
  end
  for a = first + 5, #ARGV do
    match.tenants = match.tenants or {}
    match.tenants[ARGV[a]] = true
  end
end

local function matches(id)
  local job = load_job(id, 'state', 'spec', 'dead')
  local at = tonumber(job.at)
  return at and match[job.state] and (match.dead == '' or (match.dead == '1') == (job.dead ~= nil))
         and (match.tier == '' or match.tier == job.tier) and at >= match.from and at <= match.to
         and (not match.tenants or match.tenants[job.tenant])
end
