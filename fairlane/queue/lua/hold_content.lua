-- Holds a place for content that is being written: until it belongs to a file it is given up when nobody holds it on.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', content's name | '': a new one, random part of a new name, ms to hold it
-- returns  its name; '' if it is not held any more
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log U)
-- include: drain time
local content = ARGV[2]
if content == '' then
  content = 'file-' .. int(now) .. ARGV[3]
elseif not redis.call('ZSCORE', uploads_key, content) then
  return ''
end
redis.call('ZADD', uploads_key, now + ARGV[4], content)
return content
