-- The jobs that idempotency keys of one tenant have made. Those that have made none make none from here on, if so told.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', tenant, ms that keys without a job are refused from now on | '', digests…
-- returns  an id | '' a digest
-- errors   none
-- events   none; PUBLISH none
-- cost     O(digests)
-- include: drain
local found = {}
for a = 4, #ARGV do
  local known = redis.call('GET', idem_key(ARGV[2], ARGV[a]))
  if not known and ARGV[3] ~= '' then
    redis.call('SET', idem_key(ARGV[2], ARGV[a]), '- ', 'PX', ARGV[3])
  end
  found[a - 3] = known and string.match(known, ' (.*)$') or ''
end
return found
