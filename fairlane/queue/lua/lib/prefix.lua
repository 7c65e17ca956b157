-- Prefix affinity (the policy's `affinity = prefix`): a job goes to the backend that last took one whose prompt begins
-- alike, since that has the beginning in its cache: as long as it has room, and is at most half full or has no more than
-- 1.25 × its share of the leases. (Of a few leases, chance alone gives one backend more than that.) `prefixes:<age>` maps the hash of a prompt's leading blocks to "backend epoch". Two ages are kept, so that
-- what nobody asks for is forgotten; a backend that restarted has another epoch, and an empty cache.
-- include: gate

local AGE_MS = 300000

local age = int(math.floor(now / AGE_MS))
local age_before = int(math.floor(now / AGE_MS) - 1)

-- The backend for a job whose prompt has these hashes ("shortest … longest"); `b` if none knows it, or may take it.
local function nearest(gate_tier, b, hashes)
  local asked, live, up = {}, 0, 0
  for hash in string.gmatch(hashes, '%S+') do
    asked[#asked + 1] = hash
  end
  local young = redis.call('HMGET', prefixes_key(age), unpack(asked))
  local old = redis.call('HMGET', prefixes_key(age_before), unpack(asked))
  for _, other in ipairs(backends) do
    live, up = live + other.live, up + (other.status == 'up' and 1 or 0)
  end
  local most = math.ceil(1.25 * (live + 1) / math.max(1, up))
  for i = #asked, 1, -1 do
    for _, other in ipairs(backends) do
      if (young[i] or old[i]) == other.name .. ' ' .. other.epoch then
        local limit = limit_of(other, gate_tier)
        if other.live < limit and (other.live < most or 2 * other.live < limit) then
          return other
        end
      end
    end
  end
  return b
end

local function remember(b, hashes)
  local fields = {}
  for hash in string.gmatch(hashes, '%S+') do
    fields[#fields + 1], fields[#fields + 2] = hash, b.name .. ' ' .. b.epoch
  end
  redis.call('HSET', prefixes_key(age), unpack(fields))
  redis.call('PEXPIRE', prefixes_key(age), 2 * AGE_MS)
end
