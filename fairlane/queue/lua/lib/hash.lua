-- Some fields of a hash as a table; what is absent is nil.
local function read(key, ...)
  local values, t = redis.call('HMGET', key, ...), {}
  for i, name in ipairs({...}) do
    t[name] = values[i] or nil
  end
  return t
end

-- A small hash is kept as a list and searched from its start; a value of more than 64 bytes makes Redis keep it as a
-- table. For hashes that every pop reads.
local HASH_TABLE = 'This field is here for its length: it makes Redis keep this hash as a table, for speed.'
