-- Adds, drains, undrains, marks as down, or removes a backend. A new one gets one job at a time until it is observed.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', backend, add | drain | undrain | down | remove
-- returns  nothing
-- errors   NOTFOUND; FULL a pool has 64 backends at the most; INUSE <live> it still has leases: drain it first
-- events   none; PUBLISH wake when one was added or undrained
-- cost     O(B)
-- include: drain pool

local name, act = ARGV[2], ARGV[3]
local key = backend_key(name)
local known = redis.call('EXISTS', key) == 1

local function list_without(gone)
  local names = {}
  for other in string.gmatch(redis.call('HGET', pool_key, 'backends') or '', '%S+') do
    if other ~= gone then
      names[#names + 1] = other
    end
  end
  return names
end

if act == 'add' and known then
  return
elseif act == 'add' then
  local names = list_without(name)
  if #names >= 64 then
    return redis.error_reply('FULL a pool has 64 backends at the most')
  end
  names[#names + 1] = name
  table.sort(names)
  redis.call('HSET', pool_key, 'backends', table.concat(names, ' '))
  redis.call('HSET', key, 'status', 'up', 'about', HASH_TABLE)
elseif not known then
  return redis.error_reply('NOTFOUND no such backend')
elseif act == 'remove' then
  local b = read(key, 'taken', 'ended')
  local live = (b.taken or 0) - (b.ended or 0)
  if live > 0 then
    return redis.error_reply('INUSE ' .. live)
  end
  redis.call('HSET', pool_key, 'backends', table.concat(list_without(name), ' '))
  redis.call('DEL', key)
elseif act == 'down' then
  if redis.call('HGET', key, 'status') == 'up' then
    redis.call('HSET', key, 'status', 'down')
  end
else
  redis.call('HSET', key, 'status', act == 'drain' and 'draining' or 'up')
end
if act == 'add' or act == 'undrain' then
  wake('backend')
end
