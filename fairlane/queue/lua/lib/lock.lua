-- Whether `who` holds a role now (elect.lua): what is written for a batch is refused to who lost it meanwhile.
-- include: time

local function holds(role, who)
  local till, holder = string.match(redis.call('GET', elected_key(role)) or '', '^(%d+) (.+)$')
  return holder == who and tonumber(till) > now
end
