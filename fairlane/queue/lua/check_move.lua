-- The sweeper looked at a stub: puts the next look off, or forgets the stub of a job that no longer exists.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, ms until the next look | '' to forget
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N)
-- include: time job

local id = ARGV[2]
if load_job(id, 'state').state ~= 'moved' then
  return
elseif ARGV[3] ~= '' then
  redis.call('ZADD', moves_key, 'XX', now + ARGV[3], id)
else
  redis.call('ZREM', moves_key, id)
  redis.call('DEL', job_key(id))
end
