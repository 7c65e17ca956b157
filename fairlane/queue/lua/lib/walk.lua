-- Walking over lists that change meanwhile, a few entries at a time.
-- include: job

-- Up to `n` members of a zset, with their scores, after "score member" ('': from the start). A member that has left or has another
-- score by now is found by its score: then those with the same may come again.
local function after_in(key, after, n)
  local start = 0
  if after ~= '' then
    local score, member = string.match(after, '^(%S+) (.+)$')
    local known = redis.call('ZSCORE', key, member)
    if known and tonumber(known) == tonumber(score) then
      start = redis.call('ZRANK', key, member) + 1
    else
      start = redis.call('ZCOUNT', key, '-inf', '(' .. score)
    end
  end
  return redis.call('ZRANGE', key, start, start + n - 1, 'WITHSCORES')
end

-- Up to `n` queued jobs of a line with a seq above `seq` and up to `bound`, in order: {id, seq, at}.
local function line_after(tier, tenant, seq, bound, n)
  local found = {}
  for _, e in ipairs(redis.call('XRANGE', line_key(tier, tenant), int(seq + 1) .. '-0', int(bound) .. '-0', 'COUNT', n)) do
    local id, at = string.match(e[2][2], '(%S+) (%d+)')
    found[#found + 1] = {id = id, seq = tonumber(string.match(e[1], '^%d+')), at = tonumber(at)}
  end
  local back = redis.call('ZRANGEBYSCORE', rejoin_key(tier, tenant), '(' .. int(seq), int(bound), 'WITHSCORES', 'LIMIT', 0, n)
  for i = 1, #back, 2 do
    found[#found + 1] = {id = back[i], seq = tonumber(back[i + 1]), at = tonumber(load_job(back[i], 'spec').at)}
  end
  table.sort(found, function(a, b) return a.seq < b.seq end)
  for i = #found, n + 1, -1 do
    found[i] = nil
  end
  return found
end
