-- Takes away files past their end and uploads that nobody holds on, and says whose content is to be deleted.
-- What is said is said again after a while, until forget_content says that it is gone.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', how many of each kind, ms until it is said again
-- returns  names of contents
-- errors   none
-- events   none; PUBLISH none
-- cost     O(how many · log F)
-- include: drain time file
local many = ARGV[2]
for _, id in ipairs(redis.call('ZRANGEBYSCORE', file_ends_key, '-inf', now, 'LIMIT', 0, many)) do
  remove_file(redis.call('HGET', file_key(id), 'tenant'), id)
end
for _, content in ipairs(redis.call('ZRANGEBYSCORE', uploads_key, '-inf', now, 'LIMIT', 0, many)) do
  redis.call('ZREM', uploads_key, content)
  redis.call('ZADD', discarded_key, now, content)
end
local contents = redis.call('ZRANGEBYSCORE', discarded_key, '-inf', now, 'LIMIT', 0, many)
for _, content in ipairs(contents) do
  redis.call('ZADD', discarded_key, now + ARGV[3], content)
end
return contents
