-- Some webhook endpoints of all tenants or of one, the newest first. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant | '', the id from behind which to go on | '', which: well | failing | shut | disabled | '', most, then
--          the tenants that are looked for (none: all)
-- returns  the id from behind which to go on (''; that was all), how many were looked at; then of each: it as endpoint.lua
--          shows it, how many of its deliveries wait, and how many have failed of late
-- errors   none
-- events   none; PUBLISH none
-- cost     O(LOOKED + log N)
-- include: endpoint

local LOOKED = 500
local which, most, wanted = ARGV[4], tonumber(ARGV[5]), {}
for a = 6, #ARGV do
  wanted[ARGV[a]] = true
end

local function is_meant(id)
  local tenant, enabled, failing_since = unpack(redis.call('HMGET', endpoint_key(id), 'tenant', 'enabled', 'failing_since'))
  if not tenant or (#ARGV > 5 and not wanted[tenant]) then
    return false
  end
  local state = enabled ~= '1' and 'disabled' or failing_since and 'failing' or 'well'
  return which == '' or which == state or (which == 'shut' and enabled == '1' and opens_at(read_lane(id)) > now)
end

local key = ARGV[2] == '' and all_endpoints_key or endpoints_key(ARGV[2])
local first = ARGV[3] == '' and '+' or '(' .. ARGV[3]
local ids, rows = redis.call('ZREVRANGEBYLEX', key, first, '-', 'LIMIT', 0, LOOKED + 1), {}
local looked = math.min(#ids, LOOKED)
for i = 1, looked do
  local id = ids[i]
  if is_meant(id) then
    local waiting = redis.call('ZCARD', lane_due_key(id)) + redis.call('ZCARD', lane_taken_key(id))
    rows[#rows + 1] = {show_endpoint(id), waiting, redis.call('ZCARD', failed_of_key(id))}
  end
  if #rows == most then
    looked = i
    break
  end
end
return {ids[looked + 1] and ids[looked] or '', looked, unpack(rows)}
