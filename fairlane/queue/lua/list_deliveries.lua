-- Some deliveries of all tenants, of one, or to one endpoint, the newest first, without payloads. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant | '', endpoint | '', state | '', ms and id of the entry after which to go on | twice '', how many, then
--          the tenants that are looked for (none: all)
-- returns  `ms.id` of the entry after which to go on (''; that was all), then {id, fields} of each
-- errors   none
-- events   none; PUBLISH none
-- cost     O(LOOKED + log N)
-- include: lane
local LOOKED = 1000
local FIELDS = {'tenant', 'endpoint', 'url', 'event', 'object', 'state', 'reason', 'created', 'next', 'tries', 'lane'}
local NEXT = 9 -- of FIELDS
local tenant, state, after_ms, after, most = ARGV[2], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local key
if ARGV[3] ~= '' then
  key = state == 'failed' and failed_of_key(ARGV[3]) or deliveries_of_key(ARGV[3])
else
  key = tenant ~= '' and deliveries_key(tenant) or state == 'failed' and all_failed_key or all_deliveries_key
end
local wanted = tenant ~= '' and {[tenant] = true} or {}
for a = 8, #ARGV do
  wanted[ARGV[a]] = true
end
local everybody = not next(wanted)
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
  if its_tenant and (everybody or wanted[its_tenant]) and (state == '' or state == its_state) then
    local values, fields = redis.call('HMGET', delivery_key(id), unpack(FIELDS)), {}
    for f, name in ipairs(FIELDS) do
      fields[2 * f - 1], fields[2 * f] = name, values[f] or ''
    end
    fields[2 * NEXT] = goes_at(values[NEXT], values[#FIELDS])
    rows[#rows + 1] = {id, fields}
  end
  if #rows == most or i == 1 then
    local more = first > 0 or i > 1
    return {more and int(tonumber(entries[i + 1])) .. '.' .. id or '', unpack(rows)}
  end
end
