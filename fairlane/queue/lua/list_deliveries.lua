-- Some of a tenant's deliveries, or of those to one endpoint, the newest first, without payloads. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, endpoint | '', state | '', ms and id of the entry after which to go on | twice '', how many
-- returns  `ms.id` of the entry after which to go on (''; that was all), then {id, fields} of each
-- errors   none
-- events   none; PUBLISH none
-- cost     O(LOOKED + log N)
-- include: time
local LOOKED = 1000
local FIELDS = {'tenant', 'endpoint', 'url', 'event', 'object', 'state', 'reason', 'created', 'next', 'tries'}
local tenant, state, after_ms, after, most = ARGV[2], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local key = ARGV[3] == '' and deliveries_key(tenant) or deliveries_of_key(ARGV[3])
local last = redis.call('ZCARD', key) - 1
if after ~= '' then
  last = (redis.call('ZRANK', key, after) or redis.call('ZCOUNT', key, '-inf', after_ms)) - 1
end
if last < 0 then
  return {''}
end
local first = math.max(0, last - LOOKED + 1)
local entries = redis.call('ZRANGE', key, first, last, 'WITHSCORES')
local rows = {}
for i = #entries - 1, 1, -2 do
  local id = entries[i]
  local its_tenant, its_state = unpack(redis.call('HMGET', delivery_key(id), 'tenant', 'state'))
  if its_tenant == tenant and (state == '' or state == its_state) then
    local values, fields = redis.call('HMGET', delivery_key(id), unpack(FIELDS)), {}
    for f, name in ipairs(FIELDS) do
      fields[2 * f - 1], fields[2 * f] = name, values[f] or ''
    end
    rows[#rows + 1] = {id, fields}
  end
  if #rows == most or i == 1 then
    local more = first > 0 or i > 1
    return {more and int(tonumber(entries[i + 1])) .. '.' .. id or '', unpack(rows)}
  end
end
