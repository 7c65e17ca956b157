-- A tenant's webhook endpoints. endpoint:<id> holds: tenant, url, events (types and patterns, with spaces between),
-- description, headers (JSON), secret, old_secret and old_until (ms), enabled ('1' | '0'), reason (why it is not), created,
-- failing_since, last_at (all ms), last_status. hooks:<tenant> says whether any of them wants the outcomes of jobs, as it is
-- copied into the pools: wanted ('1' | '0'), version (how often that changed).
-- include: lane

local function endpoints_of(tenant)
  return redis.call('ZRANGE', endpoints_key(tenant), 0, -1)
end

-- The key of one, if it is the tenant's.
local function own_endpoint(tenant, id)
  return redis.call('HGET', endpoint_key(id), 'tenant') == tenant and endpoint_key(id)
end

-- The key of what holds a signing secret: an endpoint, or for 'default' the tenant itself.
local function signer(tenant, id)
  return id == 'default' and signing_key(tenant) or own_endpoint(tenant, id)
end

local function no_endpoint(id)
  return redis.error_reply('NOENDPOINT ' .. id)
end

-- Its id, and its hash's names and values (values.py leaves the secrets out), with `shut_until` (ms), if nothing goes there yet.
local function show_endpoint(id)
  local fields, opens = redis.call('HGETALL', endpoint_key(id)), opens_at(read_lane(id))
  if opens > now then
    fields[#fields + 1], fields[#fields + 2] = 'shut_until', int(opens)
  end
  return {id, fields}
end

-- Another one with this url and filter.
local function twin(tenant, id, url, events)
  for _, other in ipairs(endpoints_of(tenant)) do
    local its_url, its_events = unpack(redis.call('HMGET', endpoint_key(other), 'url', 'events'))
    if other ~= id and its_url == url and its_events == events then
      return other
    end
  end
end

local function wants_jobs(enabled, events)
  local words = ' ' .. events .. ' '
  return enabled == '1' and (string.find(words, ' * ', 1, true) or string.find(words, ' job.', 1, true))
end

-- Comes after each change: notes whether outcomes of jobs are wanted now. Returns that, and its version.
local function note_hooks(tenant)
  local wanted = '0'
  for _, id in ipairs(endpoints_of(tenant)) do
    if wants_jobs(unpack(redis.call('HMGET', endpoint_key(id), 'enabled', 'events'))) then
      wanted = '1'
    end
  end
  local was, version = unpack(redis.call('HMGET', hooks_key(tenant), 'wanted', 'version'))
  if wanted ~= (was or '0') then
    redis.call('HSET', hooks_key(tenant), 'wanted', wanted)
    version = redis.call('HINCRBY', hooks_key(tenant), 'version', 1)
  end
  return wanted, version or 0
end
