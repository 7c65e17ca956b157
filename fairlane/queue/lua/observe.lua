-- Writes what a scrape of one backend led to: how many leases it may carry for each tier, and the numbers behind it.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', backend, settles and refusals that the decision has taken into account, what was seen (JSON, for
--          display and for the next observer), epoch (another one after a restart), then tier, "limit fallback why" each
-- returns  live leases, settles, refusals not yet taken into account
-- errors   NOTFOUND no such backend
-- events   none; PUBLISH wake if a pop was refused since the last one, control if the backend was down
-- cost     O(K)
-- include: drain pool

local backend = backend_key(ARGV[2])
if redis.call('EXISTS', backend) == 0 then
  return redis.error_reply('NOTFOUND no such backend')
end
local fields = {'fresh_at', now, 'seen', ARGV[5], 'epoch', ARGV[6]}
if redis.call('HGET', backend, 'status') == 'down' then
  fields[#fields + 1], fields[#fields + 2] = 'status', 'up'
  redis.call('PUBLISH', control_key, 'backends')
end
for a = 7, #ARGV, 2 do
  fields[#fields + 1], fields[#fields + 2] = 'gate:' .. ARGV[a], ARGV[a + 1]
end
redis.call('HSET', backend, unpack(fields))
redis.call('HINCRBY', backend, 'noted', ARGV[3])
redis.call('HINCRBY', backend, 'denied', 0 - ARGV[4])
wake('gate')
local b = read(backend, 'taken', 'ended', 'unfinished', 'noted', 'denied')
local ended = b.ended or 0
return {(b.taken or 0) - ended, ended - (b.unfinished or 0) - b.noted, tonumber(b.denied)}
