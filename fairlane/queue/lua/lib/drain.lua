-- For acts that must go on while Redis is full, so that work can drain: Redis refuses only a script whose first write
-- could take memory, and this one frees. Submits do without it, and are refused.
redis.call('DEL', nothing_key)
