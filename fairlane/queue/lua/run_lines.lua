-- A page of a tier's lines, the one whose head has waited longest first, with how many jobs a run has chosen of each. Reads only.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', run | '', tier, "score member" after which to go on | '', most
-- returns  where to go on | '' at the end, then a row each: tenant, queued jobs, chosen ones, limits | '', 1 if paused | 0
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log T + most)
-- include: walk

local tier, most = ARGV[3], tonumber(ARGV[5])
local found, rows = after_in(oldest_key(tier), ARGV[4], most), {''}
for i = 1, #found, 2 do
  local tenant = found[i]
  local limits, paused = unpack(redis.call('HMGET', tenant_key(tenant), 'limits', 'paused'))
  local chosen = ARGV[2] ~= '' and redis.call('HGET', run_lines_key(ARGV[2]), tier .. ' ' .. tenant)
  rows[#rows + 1] = {tenant, redis.call('XLEN', line_key(tier, tenant)) + redis.call('ZCARD', rejoin_key(tier, tenant)),
                     tonumber(chosen or 0), limits or '', paused and 1 or 0}
end
if #found == 2 * most then
  rows[1] = found[#found] .. ' ' .. found[#found - 1]
end
return rows
