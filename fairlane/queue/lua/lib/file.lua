-- The end of a file.

-- Takes the tenant's file away and says that its content may be deleted, now. False if there is no such file.
local function remove_file(tenant, id)
  if redis.call('ZREM', files_key(tenant), id) == 0 then
    return false
  end
  local content = redis.call('HGET', file_key(id), 'content')
  redis.call('DEL', file_key(id))
  redis.call('ZREM', file_ends_key, id)
  redis.call('ZADD', discarded_key, now, content)
  return content
end
