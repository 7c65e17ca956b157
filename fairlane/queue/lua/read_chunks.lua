-- A job as it is, and the next chunks of its latest attempt after a position, bounded by number and bytes. There are none
-- while it waits: what an attempt said that has ended is of no use.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', id, <token>-<ordinal> | '', chunks at most, bytes after which no further chunk is taken
-- returns  {state, token | '', the pool that it moved to | '', the attempt's last chunk | '', a chunk: its id, its events, …}
-- errors   NOTFOUND
-- events   none; PUBLISH none
-- cost     O(N) in the chunks that it returns
-- include: job

local STEP = 10
local id, after, chunks_most, bytes_most = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local job = load_job(id, 'state', 'token', 'moved_to')
if not job.state then
  return redis.error_reply('NOTFOUND no such job')
end
local reply = {job.state, job.token or '', job.moved_to or '', ''}
if not job.token or job.state == 'queued' or job.state == 'delayed' then
  return reply
end
local begin = job.token .. '-0'
local last = redis.call('XREVRANGE', chunks_key(id), '+', begin, 'COUNT', 1)[1]
if not last then
  return reply
end
reply[4] = last[1]

local earlier = after == '' or tonumber(string.match(after, '^%d+')) < tonumber(job.token)
local from, chunks, bytes, found = earlier and begin or '(' .. after, 0, 0
repeat
  found = redis.call('XRANGE', chunks_key(id), from, '+', 'COUNT', math.min(STEP, chunks_most - chunks))
  for _, entry in ipairs(found) do
    if bytes < bytes_most then
      reply[#reply + 1], reply[#reply + 2] = entry[1], entry[2][2]
      from, chunks, bytes = '(' .. entry[1], chunks + 1, bytes + #entry[2][2]
    end
  end
until #found < STEP or chunks == chunks_most or bytes >= bytes_most
return reply
