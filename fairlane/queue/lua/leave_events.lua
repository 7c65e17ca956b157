-- A batch has ended. After the last one nobody collects the pool's events any more, so they must not be kept.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', batch
-- returns  nothing
-- errors   none
-- events   none; PUBLISH none
-- cost     O(pending events)
redis.call('SREM', batching_key, ARGV[2])
if redis.call('SCARD', batching_key) == 0 and redis.call('EXISTS', events_key) == 1 then
  redis.call('XGROUP', 'DESTROY', events_key, 'batches')
end
