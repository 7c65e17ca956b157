-- One webhook delivery, with or without its payload. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', tenant | '' (whoever's it is), id, '1': with its payload
-- returns  names and values of its hash but for secrets, `next` as lane.lua has it; nothing if there is none
-- errors   none
-- events   none; PUBLISH none
-- cost     O(fields)
-- include: lane
local key, fields = delivery_key(ARGV[3]), {}
local names = {'tenant', 'endpoint', 'url', 'event', 'object', 'state', 'reason', 'created', 'next', 'tries', 'excerpt', 'lane'}
if ARGV[4] == '1' then
  names[#names + 1] = 'payload'
end
local d = read(key, unpack(names))
if not d.tenant or (ARGV[2] ~= '' and d.tenant ~= ARGV[2]) then
  return
end
d.next = goes_at(d.next, d.lane)
for name, value in pairs(d) do
  fields[#fields + 1], fields[#fields + 2] = name, value
end
return fields
