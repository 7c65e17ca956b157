-- Some of a tenant's files, in the order of their ids, which is that of their making. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, first id | first bound, last bound, asc | desc, how many
--          (bounds as of ZRANGEBYLEX, the smaller one first)
-- returns  {id, content, name, purpose, bytes, created, ends | ''} of each; {id} of one that is past its end
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log F + how many)
-- include: time
local tenant, low, high, many = ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local ids
if ARGV[5] == 'asc' then
  ids = redis.call('ZRANGEBYLEX', files_key(tenant), low, high, 'LIMIT', 0, many)
else
  ids = redis.call('ZREVRANGEBYLEX', files_key(tenant), high, low, 'LIMIT', 0, many)
end
local rows = {}
for i, id in ipairs(ids) do
  local f = redis.call('HMGET', file_key(id), 'content', 'name', 'purpose', 'bytes', 'created', 'ends')
  if f[1] and (not f[6] or tonumber(f[6]) > now) then
    rows[i] = {id, f[1], f[2], f[3], f[4], f[5], f[6] or ''}
  else
    rows[i] = {id}
  end
end
return rows
