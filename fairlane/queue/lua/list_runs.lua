-- A pool's runs, the newest first, without their forecasts. Reads only.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', when they began (ms) must be before | '', most
-- returns  a row each: id, its hash's names and values
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N + most)

local rows = {}
local top = ARGV[2] == '' and '+inf' or '(' .. ARGV[2]
for _, id in ipairs(redis.call('ZREVRANGEBYSCORE', runs_key, top, '-inf', 'LIMIT', 0, ARGV[3])) do
  local hash, brief = redis.call('HGETALL', run_key(id)), {}
  for i = 1, #hash, 2 do
    if hash[i] ~= 'forecast' then
      brief[#brief + 1], brief[#brief + 2] = hash[i], hash[i + 1]
    end
  end
  rows[#rows + 1] = {id, brief}
end
return rows
