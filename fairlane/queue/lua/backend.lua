-- Adds, drains, undrains, marks as down, or removes a backend. A new one gets one job at a time until it is observed.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', backend, add | drain | undrain | down | reopen | no_priority | remove, spec (JSON: its address) | ''
-- returns  nothing
-- errors   NOTFOUND; FULL a pool has 64 backends at the most; INUSE <live> it still has leases: drain it first
-- events   none; PUBLISH control if anything changed, wake when one was added or undrained
-- cost     O(B)
-- include: drain pool

local name, act, spec = ARGV[2], ARGV[3], ARGV[4]
local key = backend_key(name)
local status, known_spec, taken, ended = unpack(redis.call('HMGET', key, 'status', 'spec', 'taken', 'ended'))
local live = (taken or 0) - (ended or 0)

local function list_without(gone)
  local names = {}
  for other in string.gmatch(pool.backends or '', '%S+') do
    if other ~= gone then
      names[#names + 1] = other
    end
  end
  return names
end

local function add()
  local names = list_without(name)
  names[#names + 1] = name
  table.sort(names)
  redis.call('HSET', pool_key, 'backends', table.concat(names, ' '))
  redis.call('HSET', key, 'status', 'up', 'about', HASH_TABLE)
end

local function remove()
  redis.call('HSET', pool_key, 'backends', table.concat(list_without(name), ' '))
  redis.call('DEL', key)
end

local function set_status(new)
  redis.call('HSET', key, 'status', new)
  return status ~= new
end

if act ~= 'add' and not status then
  return redis.error_reply('NOTFOUND no such backend')
elseif act == 'add' and not status and #list_without(name) >= 64 then
  return redis.error_reply('FULL a pool has 64 backends at the most')
elseif act == 'remove' and live > 0 then
  return redis.error_reply('INUSE ' .. live)
end

local changed = true
if act == 'add' then
  changed = not status or spec ~= '' and spec ~= known_spec
  if not status then
    add()
  end
  if spec ~= '' then
    redis.call('HSET', key, 'spec', spec)
  end
elseif act == 'remove' then
  remove()
elseif act == 'drain' then
  changed = set_status('draining')
elseif act == 'undrain' then
  changed = set_status('up')
elseif act == 'no_priority' then -- it refuses that field, as long as its epoch lasts
  local epoch = redis.call('HGET', key, 'epoch') or '0'
  changed = redis.call('HGET', key, 'no_priority') ~= epoch
  redis.call('HSET', key, 'no_priority', epoch)
elseif act == 'reopen' then -- it answers, although its metrics teach nothing
  changed = status == 'down' and set_status('up')
else -- down, unless it drains
  changed = status == 'up' and set_status('down')
  if changed then
    redis.call('HSET', key, 'down_at', now)
  end
end
if changed then
  redis.call('PUBLISH', control_key, 'backends')
end
if act == 'undrain' or act == 'reopen' and changed or act == 'add' and not status then
  wake('backend')
end
