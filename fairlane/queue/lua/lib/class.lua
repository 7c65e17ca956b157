-- How long work really takes. The boost goes by what jobs of the same class took, never by a prediction for one request.
-- A class is a tenant's jobs of about the same bound on their answer. class:<tenant> holds per bucket "n w": w (ms) is
-- ln(M)/γ, where M is the mean of e^(γS) over their service times S. So b = (1/γ)·ln(M/(M − 1)) is boost_of(γ, w), and
-- w stays true when γ changes. `work:<tier>` of the pool's hash holds "n output ms work": a tier's means of its answers in
-- tokens, of its service times, and of its work (input + 2 × output): what is expected of a class that nobody has seen yet.
-- include: boost

local CLASS_MOST, WORK_MOST = 50, 100 -- the newest counts for no less than one in so many
local KEPT_MS, KEPT_EVERY = 86400000, 32
local stats = {}

-- Buckets of outputs up to 1, 4, 16, … tokens, ten in all.
local function bucket_of(output)
  local bucket, top = 0, 1
  while tonumber(output) > top and bucket < 9 do
    bucket, top = bucket + 1, 4 * top
  end
  return bucket
end

-- {n, a, b, c} as it stands in a hash; n = 0 if it does not.
local function stat_of(key, field)
  local id = key .. ' ' .. field
  if not stats[id] then
    local n, a, b, c = string.match(redis.call('HGET', key, field) or '', '(%S+) (%S+) ?(%S*) ?(%S*)')
    stats[id] = {key = key, field = field, n = tonumber(n) or 0, a = tonumber(a) or 0, b = tonumber(b or '') or 0,
                 c = tonumber(c or '') or 0}
  end
  return stats[id]
end

local function class_of(tenant, output)
  return stat_of(class_key(tenant), bucket_of(output))
end

local function work_of(tier)
  return stat_of(pool_key, 'work:' .. tier)
end

-- Expected ms of a job: its class's, or what its size takes in its tier, or what its submitter guessed.
local function expected_of(tenant, tier, input, output, guess)
  local class = class_of(tenant, output)
  if class.n > 0 then
    return class.a
  end
  local work = work_of(tier)
  if work.n > 0 then
    return (input + 2 * math.min(output, work.a)) * work.b / work.c
  end
  return tonumber(guess)
end

-- The mean of e^(γS) with one more, as ln(mean)/γ. Beyond γS = 5 the boost is as good as nothing; counted in full, one very
-- long job would take thousands of others to be forgotten.
local function blend(gamma, w, took, part)
  if gamma <= 0 then
    return w + part * (took - w)
  end
  w, took = math.min(w, 5 / gamma), math.min(took, 5 / gamma)
  local top = gamma * math.max(w, took)
  return (top + math.log((1 - part) * math.exp(gamma * w - top) + part * math.exp(gamma * took - top))) / gamma
end

-- A job succeeded: its class, and with the backend's report its tier, know more. write_stats must follow.
local function learn(job, input, output)
  local took = math.max(1, now - job.started)
  local class = class_of(job.tenant, job.output)
  class.n = class.n + 1
  class.a = blend(gamma_of(), class.a, took, 1 / math.min(class.n, CLASS_MOST))
  class.new = string.format('%.0f %.3f', class.n, class.a)
  if input ~= '' and input + output > 0 then
    local work = work_of(job.tier)
    work.n = work.n + 1
    local part = 1 / math.min(work.n, WORK_MOST)
    work.a = work.a + part * (output - work.a)
    work.b = work.b + part * (took - work.b)
    work.c = work.c + part * (input + 2 * output - work.c)
    work.new = string.format('%.0f %.3f %.3f %.3f', work.n, work.a, work.b, work.c)
  end
end

local function write_stats()
  for _, stat in pairs(stats) do
    if stat.new then
      redis.call('HSET', stat.key, stat.field, stat.new)
      if stat.key ~= pool_key and stat.n % KEPT_EVERY == 1 then
        redis.call('PEXPIRE', stat.key, KEPT_MS)
      end
    end
  end
end
