-- Leases up to `n` jobs to one dispatcher, none more once it has 4 MiB of bodies: from the highest tier whose gate is open, or
-- the valve's (turn.lua); of the tenant whose turn it is there, by weight and credit (ring.lua, pop.lua); on the backend with
-- the most room (gate.lua), or the one that its prompt is nearest to (prefix.lua). A job that is past its deadline is not leased: it expires on the spot.
-- A call that is repeated because its reply was lost leases nothing new: it returns those of its leases that still live.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', dispatcher, call number (rising per dispatcher), n
-- returns  {rest, {a job: {id, token, backend, spec (job.lua), attempt, until, head, body}, …}}
--          rest, of what waits: none can run, and as soon as some can a wake is published (ring.lua, pause.lua) | shut: a
--          gate does not let it through | more: it was not asked for, or (a repeated call) nobody looked
-- errors   STALE a later call of this dispatcher was answered already
-- events   settled for jobs past their deadline, one entry in `events` each; PUBLISH settled:<id>, wake
-- cost     O(n · (K + log T + B) + K · B): T tenants in the ring, B backends, K tiers; with affinity, n · 8 · B more
-- include: pop

local BYTES_MOST = 4194304 -- of payload: large jobs come fewer at a time
local PASSED_MOST = 100 -- jobs past their deadline a call
local dispatcher, call_no, n = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local reply = {}

local last = redis.call('GET', call_key(dispatcher)) -- "<call number> <id>=<token> <id>=<token> …"
local last_no = last and tonumber(string.match(last, '^%d+')) or 0
if call_no < last_no then
  return redis.error_reply('STALE the last call of this dispatcher was ' .. int(last_no))
end
if call_no == last_no then
  for id, token in string.gmatch(last, '(%S+)=(%d+)') do
    local state, now_token, lease, spec, tries, head, body = unpack(
      redis.call('HMGET', job_key(id), 'state', 'token', 'lease', 'spec', 'tries', 'head', 'body'))
    if state == 'leased' and now_token == token then
      local backend, till = string.match(lease, '%S+'), redis.call('ZSCORE', leases_key, id)
      reply[#reply + 1] = {id, token, backend, spec, tries, till, head, body}
    end
  end
  return {'more', reply}
end

read_turns()
local till = now + pool.lease_ms
local record, bytes, passed, barred = int(call_no), 0, 0, false
while #reply < n and bytes < BYTES_MOST and passed < PASSED_MOST do
  local tier, backend, gate_tier = next_turn()
  if not tier then
    barred = true
    break
  end
  local id, token, size = pop(tier, backend, gate_tier, dispatcher, till, reply)
  if id then
    record, bytes = record .. ' ' .. id .. '=' .. token, bytes + size
  else
    passed = passed + 1
  end
end

-- A script whose first write frees may go on although Redis is full (drain.lua): take_head's does, and else this DEL.
if next(popped) then
  write_tenants()
  write_pops()
else
  redis.call('DEL', call_key(dispatcher))
end
write_mended()
write_backends()
if passed == PASSED_MOST then
  redis.call('PUBLISH', wake_key, 'late') -- there may be others behind them
end
redis.call('SET', call_key(dispatcher), record, 'PX', 2 * pool.lease_ms)
local rest = 'none'
for _, tier in ipairs(tiers()) do
  if runnable(tier) then
    rest = barred and 'shut' or 'more'
  end
end
return {rest, reply}
