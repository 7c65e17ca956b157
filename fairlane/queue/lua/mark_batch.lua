-- Marks lines of a batch as done, each once: only the first mark counts. Their answers are in a part that is written.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', id, the part's name | '', its bytes, then 5 a line: line, job | '', ok | bad | lost (all three are in the part) | void | late (no answer),
--          input tokens, output tokens
-- returns  {1 if the part is the batch's now | 0: no line was new, or the batch takes none any more | -1: the part was given
--          up (Files.sweep) before it was marked, parts}
-- errors   none
-- events   none; PUBLISH none
-- cost     O(lines)
-- include: drain batch
local LOW = 1000 -- of feeding.WINDOW
local id, part = ARGV[2], ARGV[3]
local status, ending, total, fed = unpack(redis.call('HMGET', batch_key(id), 'status', 'ending', 'total', 'fed'))
local held = part ~= '' and redis.call('ZSCORE', uploads_key, part)
if ending or (status ~= 'in_progress' and status ~= 'cancelling') then
  return {held and 0 or 1, 0}
end
if part ~= '' and not held then -- given up; unless this call is repeated, and the lines are marked
  for a = 5, #ARGV, 5 do
    if ARGV[a + 2] ~= 'void' and ARGV[a + 2] ~= 'late' and redis.call('GETBIT', batch_done_key(id), ARGV[a]) == 0 then
      return {-1, 0}
    end
  end
end
local completed, failed, late, input, output, bytes = 0, 0, 0, 0, 0, 0
for a = 5, #ARGV, 5 do
  if redis.call('SETBIT', batch_done_key(id), ARGV[a], 1) == 0 then
    if ARGV[a + 2] == 'ok' then
      completed = completed + 1
    else
      failed, late = failed + 1, late + (ARGV[a + 2] == 'late' and 1 or 0)
    end
    input, output = input + ARGV[a + 3], output + ARGV[a + 4]
  end
  local open = redis.call('HGET', batch_open_key(id), ARGV[a + 1])
  if open then
    bytes = bytes + string.match(open, ' (%d+)$')
    redis.call('HDEL', batch_open_key(id), ARGV[a + 1])
  end
end
local counts = {completed = completed, failed = failed, late = late, input_tokens = input, output_tokens = output,
                open_bytes = -bytes}
for name, n in pairs(counts) do
  if n ~= 0 then
    redis.call('HINCRBY', batch_key(id), name, n)
  end
end
if held and completed + failed > 0 then
  redis.call('ZREM', uploads_key, part)
  redis.call('RPUSH', batch_parts_key(id), part)
  local before = tonumber(redis.call('HGET', batch_key(id), 'answer_bytes')) or 0
  redis.call('HSET', batch_key(id), 'answer_bytes', int(math.max(ARGV[4] / (completed + failed), 0.8 * before)))
  held = false
end
-- Time to feed it, or to end it?
local open = redis.call('HLEN', batch_open_key(id))
local left = (tonumber(fed) or 0) < tonumber(total) -- its first jobs may end before it is noted that they were fed
if (left and open <= LOW) or (not left and open == 0) then
  look_at(id, 0)
end
return {held and 0 or 1, redis.call('LLEN', batch_parts_key(id))}
