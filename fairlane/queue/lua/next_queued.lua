-- The next queued jobs of some lines of one tier, in the order in which the pool took them in (by seq). Reads only.
-- What is streamed came in that order too; what stands in `rejoin` may be older, and is looked at one by one.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', tier, seq after which, most, earliest arrival | '', latest arrival | '',
--          seq up to which all that is streamed came earlier, tenants…
-- returns  the seq up to which no job is missing | '': none is, that last bound (it may have risen), entries looked at,
--          {seq, id, arrival (0: not read), 1 streamed | 0, …} in order
-- errors   none
-- events   none; PUBLISH none
-- cost     O((tenants + most) · log N + 2,000 entries of rejoin)
-- include: job

local tier, after, most = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local from, to, floor = tonumber(ARGV[5]) or 0, tonumber(ARGV[6]) or math.huge, tonumber(ARGV[7])
local EACH = math.max(4, math.floor(2000 / (#ARGV - 7))) -- entries of one rejoin whose age is looked at
local looked = 0

-- The first streamed entry from `seq` on.
local function streamed(tenant, seq)
  local entry = redis.call('XRANGE', line_key(tier, tenant), int(seq) .. '-0', '+', 'COUNT', 1)[1]
  if entry then
    local id, at = string.match(entry[2][2], '(%S+) (%d+)')
    return tonumber(string.match(entry[1], '^%d+')), id, tonumber(at)
  end
end

-- Halves the way from `low`, which is too early, to the line's end, until `floor` is its last entry that is too early.
local function raise_floor(tenant, low)
  local last = redis.call('XREVRANGE', line_key(tier, tenant), '+', '-', 'COUNT', 1)[1]
  local high = tonumber(string.match(last[1], '^%d+')) + 1
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    local seq, _, at = streamed(tenant, middle)
    if seq and at < from then
      low = seq
    else
      high = middle
    end
  end
  floor = math.max(floor, low)
end

-- Each moves a source on to its next job; false if it has none. `stuck`: it was looked at up to that seq, in vain.
local function next_streamed(source)
  local seq, id, at = streamed(source.tenant, math.max(source.seq, floor) + 1)
  if seq and at < from then
    raise_floor(source.tenant, seq)
    seq, id, at = streamed(source.tenant, floor + 1)
  end
  looked = looked + 1
  source.seq, source.id, source.at, source.streamed = seq, id, at, 1
  return seq and at <= to
end

local function next_back(source)
  for _ = 1, EACH do
    local found = redis.call('ZRANGEBYSCORE', rejoin_key(tier, source.tenant), '(' .. int(source.seq), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not found[1] then
      return false
    end
    looked = looked + 1
    source.id, source.seq, source.at, source.streamed = found[1], tonumber(found[2]), 0, 0
    local at = ARGV[5] .. ARGV[6] == '' and from or tonumber(load_job(source.id, 'spec').at) or -1
    if at >= from and at <= to then
      return true
    end
  end
  source.stuck = true
  return true
end

local sources = {}
for a = 8, #ARGV do
  for _, advance in ipairs({next_streamed, next_back}) do
    local source = {tenant = ARGV[a], seq = after, advance = advance}
    if advance(source) then
      sources[#sources + 1] = source
    end
  end
end
table.sort(sources, function(a, b) return a.seq < b.seq end)
local rows, upto = {}, ''
while sources[1] and upto == '' do
  local first = table.remove(sources, 1)
  if not first.stuck then
    rows[#rows + 1], rows[#rows + 2], rows[#rows + 3], rows[#rows + 4] = int(first.seq), first.id, first.at, first.streamed
  end
  if first.stuck or #rows == 4 * most then
    upto = int(first.seq)
  elseif first.advance(first) then
    local place = 1
    while sources[place] and sources[place].seq < first.seq do
      place = place + 1
    end
    table.insert(sources, place, first)
  end
end
return {upto, int(floor), looked, rows}
