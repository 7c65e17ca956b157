-- Turns a batch to another state, or only writes some of its fields; it is looked at again at once.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', id, who must hold it | '', states that it may have: ' a b … ', new state | '', ms that an ended one is
--          kept | '', then names and values
-- returns  1; 0 if it has another state, or another holds it
-- errors   none
-- events   none; PUBLISH none
-- cost     O(fields + open jobs)
-- include: drain batch lock
local id, who, to, kept = ARGV[2], ARGV[3], ARGV[5], ARGV[6]
local status = redis.call('HGET', batch_key(id), 'status')
if not status or not string.find(ARGV[4], ' ' .. status .. ' ', 1, true) then
  return 0
end
if who ~= '' and not holds('batch:' .. id, who) then
  return 0
end
if #ARGV > 6 then
  redis.call('HSET', batch_key(id), unpack(ARGV, 7))
end
if to ~= '' then
  redis.call('HSET', batch_key(id), 'status', to, to .. '_at', int(now))
  look_at(id, 0)
end
if kept ~= '' then
  redis.call('DEL', batch_open_key(id), batch_done_key(id))
  redis.call('PEXPIRE', batch_key(id), kept)
  redis.call('ZADD', batch_events_key, now, id)
  redis.call('ZREMRANGEBYRANK', batch_events_key, 0, -100001) -- nobody may be there to fan them out
end
return 1
