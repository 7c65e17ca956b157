-- API keys. key:<prefix> holds: digest (SHA-256 of the whole secret, never the secret), tenant, role, tiers and pools
-- (JSON lists; none: all that its tenant may use), label, created, expires, revoked, used (all ms), next (the prefix of the
-- key that took its place). What can no longer be used is shown for a while, then it goes.
-- include: time

local KEPT_MS = 30 * 86400000

-- Its end, from which on it is kept for a while.
local function end_secret(key, field, at)
  redis.call('HSET', key, field, int(at))
  redis.call('PEXPIRE', key, int(math.max(0, at - now) + KEPT_MS))
end

local function secret_state(revoked, expires)
  return revoked and 'revoked' or expires and tonumber(expires) <= now and 'expired' or 'active'
end

-- Writes a new one; false if another has this prefix already.
local function add_secret(prefix, digest, tenant, lasts, fields)
  local key = key_key(prefix)
  if redis.call('EXISTS', key) == 1 then
    return redis.call('HGET', key, 'digest') == digest -- the same call, repeated after a lost reply
  end
  redis.call('HSET', key, 'digest', digest, 'tenant', tenant, 'created', now, unpack(fields))
  redis.call('ZADD', keys_key(tenant), now, prefix)
  if lasts then
    end_secret(key, 'expires', now + lasts)
  end
  return true
end

-- What is shown of one: never its digest. Its state comes first, then names and values.
local function show_secret(prefix)
  local shown, fields = {}, redis.call('HGETALL', key_key(prefix))
  local kept = {}
  for i = 1, #fields, 2 do
    kept[fields[i]] = fields[i + 1]
    if fields[i] ~= 'digest' then
      shown[#shown + 1], shown[#shown + 2] = fields[i], fields[i + 1]
    end
  end
  return {prefix, secret_state(kept.revoked, kept.expires), shown}
end
