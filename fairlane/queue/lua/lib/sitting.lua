-- Users of the admin page, and their sittings. user:<name> holds: role, tenants (a JSON list; none: all), password (its
-- argon2 hash), created, disabled, epoch (how often all sittings were ended), seen (when a sitting of theirs was last used,
-- to a minute) and seen_from. A sitting is of the epoch in which it began: whatever raises the epoch ends them all.
-- include: time

-- What is shown of a user: never the password.
local function show_user(name)
  local shown, fields = {}, redis.call('HGETALL', user_key(name))
  for i = 1, #fields, 2 do
    shown[#shown + 1] = fields[i]
    shown[#shown + 1] = fields[i] == 'password' and '1' or fields[i + 1]
  end
  return {name, shown}
end

-- Begins a sitting, known by the digest of its token, that ends after `idle` ms without use, or `most` ms. `by` says what
-- the user had to show: a password, or that they may enter once.
local function begin_sitting(digest, name, by, address, idle, most)
  local user = user_key(name)
  local epoch = redis.call('HGET', user, 'epoch') or '0'
  redis.call('HSET', sitting_key(digest),
    'user', name, 'by', by, 'epoch', epoch, 'since', now, 'used', now, 'ends', now + most)
  redis.call('PEXPIRE', sitting_key(digest), idle)
  redis.call('HSET', user, 'seen', now, 'seen_from', address)
end
