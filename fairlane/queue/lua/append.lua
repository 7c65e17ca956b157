-- Appends to up to 100 streamed answers what has come of them, each on its own and while its lease holds. Repeated it
-- changes nothing.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', for how long what was appended is kept (ms), then 5 a chunk: id, token, number of its first event in
--          the attempt, of its last one, the events
-- returns  a word a chunk: ok | cancelled (stop the work and release it) | lost (drop it, another may hold the job)
-- errors   OOM from Redis itself: then what comes before the first chunk that was not written is there
-- events   none; PUBLISH chunks:<id>
-- cost     O(1) a chunk, and O(N) in the chunks of an earlier attempt, which the first one of the next takes away
-- include: job

local STRIDE = 5
local TOLD_MOST = 16384 -- a reader that is slow must not cost Redis its memory: more than that it fetches itself
local words = {}

-- What a reader says of an attempt before its first event: " backend ms-it-waited".
local function origin(id)
  local job = load_job(id, 'spec', 'created', 'lease')
  local backend, started = string.match(job.lease, '(%S+) (%S+)')
  return ' ' .. backend .. ' ' .. int(math.max(0, started - (job.created or job.at)))
end

local function append(id, token, first, last, events)
  local job = load_job(id, 'state', 'token')
  if job.token ~= token or not redis.call('ZSCORE', leases_key, id) then
    return 'lost'
  elseif job.state ~= 'leased' then
    return 'cancelled'
  end
  local place = token .. '-' .. last
  if #redis.call('XRANGE', chunks_key(id), place, '+', 'COUNT', 1) == 0 then
    redis.call('XADD', chunks_key(id), place, 'e', events)
    if first == '1' then
      redis.call('XTRIM', chunks_key(id), 'MINID', token .. '-0')
    end
    redis.call('PEXPIRE', chunks_key(id), ARGV[2])
  end
  local told = token .. ' ' .. first .. ' ' .. last
  if first == '1' then
    told = told .. origin(id)
  end
  redis.call('PUBLISH', chunks_key(id), #events <= TOLD_MOST and told .. '\n' .. events or told)
  return 'ok'
end

for a = 3, #ARGV, STRIDE do
  words[#words + 1] = append(unpack(ARGV, a, a + STRIDE - 1))
end
return words
