-- The next parts of a batch's answers; first takes off those that were deleted. Without parts to take off it reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', id, how many to take off, the first to return, how many
-- returns  names of contents
-- errors   none
-- events   none; PUBLISH none
-- cost     O(how many)
local key = batch_parts_key(ARGV[2])
if ARGV[3] ~= '0' then
  redis.call('LTRIM', key, ARGV[3], -1)
end
return redis.call('LRANGE', key, ARGV[4], ARGV[4] + ARGV[5] - 1)
