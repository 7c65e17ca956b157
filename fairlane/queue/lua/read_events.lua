-- The next outcomes of batches' jobs: first those that were read before and not acknowledged. Those of other jobs are
-- acknowledged at once.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', how many events to look at
-- returns  {-1} if no batch runs in this pool; {events looked at, event, job, batch, …}
-- errors   none
-- events   none; PUBLISH none
-- cost     O(how many)
-- include: drain
local rows = {0}
if redis.call('SCARD', batching_key) == 0 then
  return {-1}
end

local function read(from)
  local found = redis.call('XREADGROUP', 'GROUP', 'batches', 'collector', 'COUNT', ARGV[2], 'STREAMS', events_key, from)
  for _, entry in ipairs(found and found[1] and found[1][2] or {}) do
    local fields = {}
    for i = 1, #(entry[2] or {}), 2 do
      fields[entry[2][i]] = entry[2][i + 1]
    end
    rows[1] = rows[1] + 1
    if (fields.batch or '') == '' then
      redis.call('XACK', events_key, 'batches', entry[1])
    else
      rows[#rows + 1], rows[#rows + 2], rows[#rows + 3] = entry[1], fields.job, fields.batch
    end
  end
end

read('0')
if rows[1] == 0 then
  read('>')
end
return rows
