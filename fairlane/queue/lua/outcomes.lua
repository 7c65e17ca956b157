-- What became of some jobs, as many as fit. Reads only.
--
-- KEYS[1]  the pool's prefix
-- ARGV     now | '', bytes at the most (but one job always), jobs…
-- returns  {batch | '', state, head, status | '', result | '', error (JSON) | '', usage | ''} a job; {} of one that is gone
-- errors   none
-- events   none; PUBLISH none
-- cost     O(jobs)
local rows, bytes = {}, 0
for a = 3, #ARGV do
  local key = job_key(ARGV[a])
  bytes = bytes + redis.call('HSTRLEN', key, 'result')
  if a > 3 and bytes > tonumber(ARGV[2]) then
    break
  end
  local row = redis.call('HMGET', key, 'batch', 'state', 'head', 'status', 'result', 'error', 'usage')
  for i = 1, 7 do
    row[i] = row[i] or ''
  end
  rows[#rows + 1] = row[2] == '' and {} or row
end
return rows
