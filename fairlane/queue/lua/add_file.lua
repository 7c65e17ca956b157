-- Makes held content a file. A file of this id that is there already stays as it is.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, file's id, content's name, file's name, purpose, bytes, ms until it ends | ''
-- returns  1; 0 if nobody holds this content any more
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log F)
-- include: time
local tenant, id, content = ARGV[2], ARGV[3], ARGV[4]
if ARGV[6] == 'batch_output' then
  redis.call('DEL', nothing_key) -- what was paid for is kept also while Redis is full, as in drain.lua
end
if redis.call('EXISTS', file_key(id)) == 1 then
  return 1
end
if redis.call('ZREM', uploads_key, content) == 0 then
  return 0
end
redis.call('HSET', file_key(id), 'tenant', tenant, 'content', content, 'name', ARGV[5], 'purpose', ARGV[6],
  'bytes', ARGV[7], 'created', now)
redis.call('ZADD', files_key(tenant), 0, id)
if ARGV[8] ~= '' then
  redis.call('HSET', file_key(id), 'ends', int(now + ARGV[8]))
  redis.call('ZADD', file_ends_key, now + ARGV[8], id)
end
return 1
