-- Prolongs the leases of up to 1,000 jobs, each on its own, and with them the time for which what they said is kept.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', for how long chunks are kept (ms), then id, token a lease
-- returns  a word a lease: ok | cancelled (stop the work and release it) | lost (drop it, another may hold it)
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N) a lease
-- include: drain pool job

local till = now + pool.lease_ms
local words = {}
for a = 3, #ARGV, 2 do
  local job = load_job(ARGV[a], 'state', 'token')
  local word = 'ok'
  if job.token ~= ARGV[a + 1] or not redis.call('ZSCORE', leases_key, job.id) then
    word = 'lost'
  elseif job.state ~= 'leased' then
    word = 'cancelled'
  else
    redis.call('ZADD', leases_key, till, job.id)
    redis.call('PEXPIRE', chunks_key(job.id), ARGV[2])
  end
  words[#words + 1] = word
end
return words
