-- Notes how far a batch was fed, and which of its jobs are open by that.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', id, who must hold it, requests fed, bytes of the file behind them, then 3 a job: id, line, bytes
-- returns  1; 0 if it is not in progress any more, or another holds it
-- errors   none
-- events   none; PUBLISH none
-- cost     O(jobs)
-- include: drain lock
local id = ARGV[2]
if redis.call('HGET', batch_key(id), 'status') ~= 'in_progress' or not holds('batch:' .. id, ARGV[3]) then
  return 0
end
local bytes = 0
for a = 6, #ARGV, 3 do
  -- One that ended at once may be marked already.
  if redis.call('GETBIT', batch_done_key(id), ARGV[a + 1]) == 0
      and redis.call('HSET', batch_open_key(id), ARGV[a], ARGV[a + 1] .. ' ' .. ARGV[a + 2]) == 1 then
    bytes = bytes + ARGV[a + 2]
  end
end
redis.call('HSET', batch_key(id), 'fed', ARGV[4], 'offset', ARGV[5])
redis.call('HINCRBY', batch_key(id), 'open_bytes', bytes)
return 1
