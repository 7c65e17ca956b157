-- Jobs that are leased, those first whose lease ends first; of one dispatcher and of some tenants, if these are named. Reads only.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', dispatcher | '', most, then the tenants (none: all)
-- returns  how many leases there are and how many were looked at; then of each lease: id, until (ms), tenant, tier, backend,
--          since (ms), dispatcher
-- errors   none
-- events   none; PUBLISH none
-- cost     O(LOOKED)
-- include: job

local LOOKED = 2000
local wanted = {}
for a = 4, #ARGV do
  wanted[ARGV[a]] = true
end
local entries, looked = redis.call('ZRANGE', leases_key, 0, LOOKED - 1, 'WITHSCORES'), 0
local rows = {}
for i = 1, #entries, 2 do
  local spec, lease = unpack(redis.call('HMGET', job_key(entries[i]), 'spec', 'lease'))
  local tenant, tier = read_spec(spec or '')
  local backend, since, _, holder = string.match(lease or '', '(%S+) (%S+) (%S+) (%S+)')
  looked = looked + 1
  if tenant and holder and (ARGV[2] == '' or holder == ARGV[2]) and (#ARGV < 4 or wanted[tenant]) then
    rows[#rows + 1] = {entries[i], entries[i + 1], tenant, tier, backend, since, holder}
    if #rows == tonumber(ARGV[3]) then
      break
    end
  end
end
return {redis.call('ZCARD', leases_key), looked, unpack(rows)}
