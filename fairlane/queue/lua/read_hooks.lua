-- The next outcomes that webhooks are to tell of: first those that were read before and not acknowledged. Those that
-- nobody is told of are acknowledged at once.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', how many events to look at
-- returns  {-1} if nobody wants webhooks in this pool; {events looked at, event, job, state, tenant, …}
-- errors   none
-- events   none; PUBLISH none
-- cost     O(how many)
-- include: drain pool

if not pool.hooking then
  return {-1}
end
local rows, skipped = {0}, {}

local function read(from)
  local found =
    redis.call('XREADGROUP', 'GROUP', 'webhooks', 'fanout', 'COUNT', ARGV[2], 'STREAMS', events_key, from)
  for _, entry in ipairs(found and found[1] and found[1][2] or {}) do
    local fields = {}
    for i = 1, #(entry[2] or {}), 2 do
      fields[entry[2][i]] = entry[2][i + 1]
    end
    rows[1] = rows[1] + 1
    if fields.hook then
      local n = #rows
      rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4] = entry[1], fields.job, fields.state, fields.tenant
    else
      skipped[#skipped + 1] = entry[1]
    end
  end
end

read('0')
if rows[1] == 0 then
  read('>')
end
if #skipped > 0 then
  redis.call('XACK', events_key, 'webhooks', unpack(skipped))
end
return rows
