-- What tenants have in the pool and may do there, and what holds them. Reads only.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', tenants: 200 at the most
-- returns  {tier, …}, {tenant, its limits ('' if none were set), jobs that wait, live leases, hold reason | '',
--          held until | '', of each tier when the head of its line arrived | '' (nothing waits there)}, …
-- errors   none
-- events   none; PUBLISH none
-- cost     O(U · K · log T)
-- include: pool tenant

local rows = {tiers()}
for a = 2, #ARGV do
  local t = tenant_of(ARGV[a])
  local till, why = hold_of(t)
  local row = {t.name, redis.call('HGET', tenant_key(t.name), 'limits') or '', t.waiting, t.inflight, why or '',
               till and till < math.huge and int(till) or ''}
  for _, tier in ipairs(tiers()) do
    row[#row + 1] = redis.call('ZSCORE', oldest_key(tier), t.name) or ''
  end
  rows[#rows + 1] = row
end
return rows
