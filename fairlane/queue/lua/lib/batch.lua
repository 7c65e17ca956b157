-- A batch's hash: status tenant endpoint input window created expires metadata tiers pools, <state>_at; once its file was found
-- good: model pool(code) total; fed(requests) offset(bytes) open_bytes; completed failed late(of the failed: its job has expired) answer_bytes(how long answers are of late) input_tokens output_tokens;
-- ending(its end state, once nothing more is marked) output_id error_id; checked; faults(JSON).
-- include: time

-- It is to be looked at in `ms`, or earlier if it was to be already.
local function look_at(member, ms)
  local at = tonumber(redis.call('ZSCORE', batches_due_key, member))
  if not at or at > now + ms then
    redis.call('ZADD', batches_due_key, now + ms, member)
  end
end
