-- The next running jobs, in the order of their ids, of which somebody looks for some. Reads only. Leases are renewed all the time, so
-- that their index is no order to page by; those of a pool are as many as its backends run.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', most leases to read, id after which | '', most to look at, most to find, then as lib/match.lua has it
-- returns  looked at, id of the last one looked at | '' if nothing follows, ids…
-- errors   none
-- events   none; PUBLISH none
-- cost     O(L + A · log A), L leases read, A of them after that id
-- include: match

local after, looks, most = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
read_match(6)

-- The longer id has the greater number. Those of one length are sorted at once: a comparison in Lua would take most of the time.
local of_length, lengths = {}, {}
for _, id in ipairs(redis.call('ZRANGE', leases_key, 0, ARGV[2] - 1)) do
  if #id > #after or #id == #after and id > after then
    if not of_length[#id] then
      of_length[#id], lengths[#lengths + 1] = {}, #id
    end
    table.insert(of_length[#id], id)
  end
end
table.sort(lengths)
local ids = {}
for _, length in ipairs(lengths) do
  table.sort(of_length[length])
  for _, id in ipairs(of_length[length]) do
    ids[#ids + 1] = id
  end
end
local found, looked = {0, ''}, 0
for _, id in ipairs(ids) do
  looked = looked + 1
  if matches(id) then
    found[#found + 1] = id
  end
  if looked == looks or #found == most + 2 then
    found[2] = looked < #ids and id or ''
    break
  end
end
found[1] = looked
return found
