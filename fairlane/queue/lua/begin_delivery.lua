-- What to send, for whoever was given the delivery: its lease is made longer. It fails if nothing goes to its endpoint any more.
--
-- KEYS[1]  the account's prefix
-- ARGV     now | '', id, token, ms of its lease, how many of one lane may be out at once
-- returns  tenant, endpoint | '', url, headers (JSON), payload, which attempt it is, created, then the secrets that
--          sign it (none: the tenant's default one is not made yet); nothing if it is not to be sent
-- errors   none
-- events   none; PUBLISH none
-- cost     O(log N)
-- include: drain delivery lineup share
local id = ARGV[2]
local d = read(delivery_key(id), 'token', 'lane', 'tenant', 'endpoint', 'url', 'secret', 'headers', 'payload', 'n',
  'created')
if d.token ~= ARGV[3] or not redis.call('ZSCORE', lane_taken_key(d.lane), id) then
  return {}
end
local reason = barred(d.lane)
if reason then
  redis.call('ZREM', lane_taken_key(d.lane), id)
  comes_home(d.tenant, id)
  finish(id, 'failed', reason, KEPT)
  rank(d.lane, {}, tonumber(ARGV[5]))
  return {}
end
redis.call('ZADD', lane_taken_key(d.lane), now + ARGV[4], id)
redis.call('ZADD', tenant_out_key(d.tenant), now + ARGV[4], id)
local url, headers, signer = d.url, d.headers, {secret = d.secret}
if d.endpoint ~= '' then
  signer = read(endpoint_key(d.endpoint), 'url', 'headers', 'secret', 'old_secret', 'old_until')
  url, headers = signer.url, signer.headers
  redis.call('HSET', delivery_key(id), 'url', url)
elseif d.secret == '' then
  signer = read(signing_key(d.tenant), 'secret', 'old_secret', 'old_until')
end
local sending = {d.tenant, d.endpoint, url, headers, d.payload, int(d.n + 1), d.created}
sending[#sending + 1] = signer.secret
if signer.old_secret and tonumber(signer.old_until) > now then
  sending[#sending + 1] = signer.old_secret
end
return sending
