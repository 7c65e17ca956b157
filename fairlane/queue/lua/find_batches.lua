-- Some batches of all tenants or of one, the newest first, without their faults and webhooks. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant | '', the id from behind which to go on | '', states: ' a b … ' | '', most, then the tenants that are
--          looked for (none: all)
-- returns  the id from behind which to go on (''; that was all), how many were looked at; then of each batch: id, hash
-- errors   none
-- events   none; PUBLISH none
-- cost     O(LOOKED + log N)

local LOOKED = 500
local FIELDS = {'tenant', 'status', 'endpoint', 'input', 'window', 'created', 'expires', 'model', 'total', 'completed', 'failed',
  'in_progress_at', 'finalizing_at', 'completed_at', 'failed_at', 'expired_at', 'cancelling_at', 'cancelled_at',
  'output_file_id', 'error_file_id', 'input_tokens', 'output_tokens'}
local states, most, wanted = ARGV[4], tonumber(ARGV[5]), {}
for a = 6, #ARGV do
  wanted[ARGV[a]] = true
end
local key = ARGV[2] == '' and all_batches_key or batches_key(ARGV[2])
local first = ARGV[3] == '' and '+' or '(' .. ARGV[3]
local ids, rows = redis.call('ZREVRANGEBYLEX', key, first, '-', 'LIMIT', 0, LOOKED + 1), {}
local looked = math.min(#ids, LOOKED)
for i = 1, looked do
  local tenant, status = unpack(redis.call('HMGET', batch_key(ids[i]), 'tenant', 'status'))
  if tenant and (#ARGV < 6 or wanted[tenant]) and (states == '' or string.find(states, ' ' .. status .. ' ', 1, true)) then
    local values, fields = redis.call('HMGET', batch_key(ids[i]), unpack(FIELDS)), {}
    for f, name in ipairs(FIELDS) do
      if values[f] then
        fields[#fields + 1], fields[#fields + 2] = name, values[f]
      end
    end
    rows[#rows + 1] = {ids[i], fields}
  end
  if #rows == most then
    looked = i
    break
  end
end
return {ids[looked + 1] and ids[looked] or '', looked, unpack(rows)}
