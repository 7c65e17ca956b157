-- Begins a run: freezes which jobs it may choose from, those that have their place by now. Repeated, it changes nothing.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, who, plan (JSON), retier | move | purge, tier that jobs change to | '', tenant | '', tiers to choose
--          from: 'a b …', ms that a job must be old | '', most jobs, most runs that may be under way
-- returns  1
-- errors   RUNSFULL <most>
-- events   none; PUBLISH none
-- cost     O(log N)
-- include: pool run

local EVER = '9007199254740991'
local id, most_open = ARGV[2], tonumber(ARGV[11])
if redis.call('EXISTS', run_key(id)) == 1 then
  return 1
end
if redis.call('ZCARD', runs_open_key) >= most_open then
  return redis.error_reply('RUNSFULL ' .. most_open)
end
if ARGV[5] == 'purge' then -- it makes room where there is none
  redis.call('DEL', nothing_key)
end
local old = redis.call('ZRANGEBYSCORE', runs_key, '-inf', int(now - KEPT_MS), 'LIMIT', 0, 10)
redis.call('HSET', run_key(id), 'by', ARGV[3], 'plan', ARGV[4], 'act', ARGV[5], 'to', ARGV[6], 'tenant', ARGV[7],
           'tiers', ARGV[8], 'bound', int(pool.seq or 0), 'before', ARGV[9] == '' and EVER or int(now - ARGV[9]),
           'most', ARGV[10], 'created', int(now), 'stepped', int(now))
redis.call('ZADD', runs_key, now, id)
for _, past in ipairs(old) do
  redis.call('ZREM', runs_key, past)
end
turn_run({id = id}, 'counting')
return 1
