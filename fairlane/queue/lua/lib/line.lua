-- A line: the queued jobs of one (tier, tenant), in order of seq. Most stand in a stream, each as one field
-- "id at boost tokens". Those that come back to an old place stand in `rejoin`, since a stream cannot insert in front.
-- The head is the smaller seq of the two.
-- include: job

local function line_append(tier, tenant, seq, id, at, boost, tokens)
  redis.call('XADD', line_key(tier, tenant), seq .. '-0', 'j', id .. ' ' .. at .. ' ' .. boost .. ' ' .. tokens)
end

local function seq_of(entry)
  return tonumber(string.match(entry.place, '^%d+'))
end

-- Up to two entries, in order: {id, place (the stream's entry id, or seq), at, boost, tokens, back = it stands in rejoin,
-- alone = it is the only one in its stream}.
local function line_front(tier, tenant)
  local front = {}
  local streamed = redis.call('XRANGE', line_key(tier, tenant), '-', '+', 'COUNT', 2)
  for i, e in ipairs(streamed) do
    local id, at, boost, tokens = string.match(e[2][2], '(%S+) (%d+) (%d+) (%d+)')
    front[i] = {id = id, place = e[1], at = at, boost = boost, tokens = tokens, alone = not streamed[2]}
  end
  local back = redis.call('ZRANGE', rejoin_key(tier, tenant), 0, 1, 'WITHSCORES')
  if back[1] then
    for i = 1, #back, 2 do
      local job = load_job(back[i], 'spec')
      front[#front + 1] = {id = back[i], place = back[i + 1], at = job.at, boost = job.boost,
                           tokens = job.input + 2 * job.output, back = true}
    end
    table.sort(front, function(a, b) return seq_of(a) < seq_of(b) end)
  end
  return front[1], front[2]
end

-- Takes a job out of its line, wherever it stands. An empty stream is deleted: it would keep 4.5 KB.
local function line_remove(tier, tenant, seq, id)
  if redis.call('ZREM', rejoin_key(tier, tenant), id) == 0 then
    redis.call('XDEL', line_key(tier, tenant), seq .. '-0')
    if redis.call('XLEN', line_key(tier, tenant)) == 0 then
      redis.call('DEL', line_key(tier, tenant))
    end
  end
end
