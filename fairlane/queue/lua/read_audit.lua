-- Entries of the audit, the newest first, that match a filter.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', the id before which to go on | '', most that are returned, most that are looked at, tenants whose
--          entries are wanted (JSON list; '' for all entries), then name, value of the fields that an entry must have; `act`
--          may be the first part of one, and end with a dot
-- returns  the id before which to go on ('' if there are no more), how many were looked at, and for each entry: its id, its
--          names and values, its outcome ('' for none yet)
-- errors   none
-- events   none; PUBLISH none
-- cost     O(most that are looked at)

local wanted, count = {}, 0
for a = 6, #ARGV, 2 do
  wanted[ARGV[a]], count = ARGV[a + 1], count + 1
end
local prefix = wanted.act and string.sub(wanted.act, -1) == '.' and #wanted.act
local scope = ARGV[5] ~= '' and {}
for _, tenant in ipairs(scope and cjson.decode(ARGV[5]) or {}) do
  scope[tenant] = true
end

local function matches(entry)
  local found = 0
  for i = 1, #entry, 2 do
    local name, value = entry[i], entry[i + 1]
    if scope and name == 'tenant' and not scope[value] then
      return false
    end
    if wanted[name] then
      if (name == 'act' and prefix and string.sub(value, 1, prefix) or value) ~= wanted[name] then
        return false
      end
      found = found + 1
    end
  end
  return found == count
end

local most = tonumber(ARGV[3])
local last = ARGV[2] == '' and '+' or '(' .. ARGV[2]
local entries = redis.call('XREVRANGE', audit_key, last, '-', 'COUNT', ARGV[4])
local rows, looked, following = {}, 0, ''
for _, entry in ipairs(entries) do
  if #rows == most then
    break
  end
  looked, following = looked + 1, entry[1]
  if matches(entry[2]) then
    rows[#rows + 1] = {entry[1], entry[2], redis.call('HGET', audit_ends_key, entry[1]) or ''}
  end
end
if looked == #entries and looked < tonumber(ARGV[4]) then
  following = ''
end
return {following, looked, rows}
