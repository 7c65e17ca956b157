-- Sends a delivery again, whatever became of it: now, by a fresh schedule. If it is out, that is its first attempt.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant, id
-- returns  '', or why nothing goes there: deleted | disabled; nothing if the tenant has no such delivery
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N)
-- include: delivery lineup
local id = ARGV[3]
local d = read(delivery_key(id), 'tenant', 'lane')
if d.tenant ~= ARGV[2] then
  return
end
local reason = barred(d.lane)
if not reason then
  start(id, d.lane)
  forget_ills(d.lane) -- whoever asks for it has seen to the receiver
end
return reason or ''
