-- Which lines of a batch are done. Reads only.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', id, lines…
-- returns  1 | 0 a line
-- errors   none
-- events   none; PUBLISH none
-- cost     O(lines)
local bits = {}
for a = 3, #ARGV do
  bits[a - 2] = redis.call('GETBIT', batch_done_key(ARGV[2]), ARGV[a])
end
return bits
