-- Takes in up to 100 jobs, each on its own: a refusal of one does not touch the others.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', code, then 9 a job: random, tenant, tier,
--          "max input output expected_ms delay_ms deadline_ms|- hook inbox|-" (hook 1: it has a webhook),
--          "digest-of-idempotency-key digest-of-request" | '', batch | '', head, body,
--          hashes of its prompt's leading blocks, the shortest first | ''
-- returns  2 values a job: 'new' id | 'old' id | 'mismatch' '' | 'no_tier' tiers | 'tenant_full' waiting | 'pool_full' waiting
-- errors   OOM from Redis itself before anything is written
-- events   none; PUBLISH wake
-- cost     O(log T) a job; its boost goes by what its class took (class.lua)
-- include: ring job class hooks

local STRIDE = 9
local seq, waiting, gamma = tonumber(pool.seq) or 0, tonumber(pool.waiting) or 0, gamma_of()
local queued, reply = {}, {}

-- The job gets its place; its hash is there already.
local function stand_in_line(id, tier, t, boost, tokens)
  line_append(tier, t.name, int(seq), id, now, boost, tokens)
  queued[tier] = (queued[tier] or 0) + 1
  -- Who is in the ring had a head before; else the line may have been empty.
  if not redis.call('ZSCORE', ring_key(tier), t.name) then
    local head = line_front(tier, t.name)
    reseat(tier, t, head.id ~= id and head or nil, head)
  end
end

local function take_in(id, t, a)
  local tier, batch = ARGV[a + 2], ARGV[a + 5]
  local most, input, output, expected, delay, deadline, hook, inbox =
    string.match(ARGV[a + 3], '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
  local key, boost = job_key(id), boost_of(gamma, expected_of(t.name, tier, input, output, expected))
  local spec = table.concat({t.name, tier, int(seq), now, boost, input, output, most}, ' ')
  redis.call('HSET', key, 'state', delay == '0' and 'queued' or 'delayed', 'spec', spec, 'head', ARGV[a + 6],
             'body', ARGV[a + 7])
  for name, value in pairs({batch = batch, prefix = ARGV[a + 8], inbox = inbox ~= '-' and inbox or ''}) do
    if value ~= '' then
      redis.call('HSET', key, name, value)
    end
  end
  if hook == '1' then
    redis.call('HSET', key, 'hook', 1)
    join_hooks()
  end
  if deadline ~= '-' then
    redis.call('HSET', key, 'deadline', now + deadline)
    redis.call('ZADD', deadlines_key, now + deadline, id)
  end
  if delay ~= '0' then
    redis.call('HSET', key, 'due', now + delay)
    redis.call('ZADD', due_key, now + delay, id)
  else
    stand_in_line(id, tier, t, boost, input + 2 * output)
  end
  waiting = waiting + 1
  count(t, 1, 0)
end

-- The answer to one job that is not taken in, or nil.
local function answer(t, tier, known, request)
  if known then -- "<digest of the request> <id>"
    if string.sub(known, 1, #request) == request then
      return 'old', string.sub(known, #request + 2)
    end
    return 'mismatch', ''
  elseif not is_tier(tier) then
    return 'no_tier', pool.tiers
  elseif waiting >= tonumber(pool.max_waiting_pool) then
    return 'pool_full', int(waiting)
  elseif t.waiting >= tonumber(t.max_waiting or pool.max_waiting_tenant) then
    return 'tenant_full', int(t.waiting)
  end
end

for a = 3, #ARGV, STRIDE do
  local t = tenant_of(ARGV[a + 1])
  local digest, request = string.match(ARGV[a + 4], '(%S+) (%S+)')
  local known = digest and redis.call('GET', idem_key(t.name, digest))
  local word, value = answer(t, ARGV[a + 2], known, request)
  if not word then
    seq = seq + 1
    word, value = 'new', 'job_' .. ARGV[2] .. int(seq) .. ARGV[a]
    take_in(value, t, a)
    if digest then
      local kept = math.max(86400000, pool.result_ttl_ms)
      redis.call('SET', idem_key(t.name, digest), request .. ' ' .. value, 'PX', kept)
    end
  end
  reply[#reply + 1], reply[#reply + 2] = word, value
end

redis.call('HSET', pool_key, 'seq', int(seq), 'waiting', waiting)
for tier, n in pairs(queued) do
  redis.call('HINCRBY', pool_key, 'waiting:' .. tier, n)
end
write_tenants()
return reply
