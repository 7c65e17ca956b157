-- Some of a tenant's batches, the newest first. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, the last bound of ZREVRANGEBYLEX, how many
-- returns  id, hash, … (empty: it is past its retention)
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N + how many)
local rows = {}
for _, id in ipairs(redis.call('ZREVRANGEBYLEX', batches_key(ARGV[2]), ARGV[3], '-', 'LIMIT', 0, ARGV[4])) do
  rows[#rows + 1], rows[#rows + 2] = id, redis.call('HGETALL', batch_key(id))
end
return rows
