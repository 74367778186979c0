-- Take every key of a gang as pending (epoch 0, below every epoch), or none; for several gangs, one after the other.
-- KEYS: dev:<id> ... of all gangs.   ARGV: ttl in ms, then for each gang its grant and how many keys are its own.
-- Returns the positions (from 1, among all keys) of those that another holds.
local taken, first = {}, 1
for gang = 2, #ARGV, 2 do
  local mine = string.format("%020d %s", 0, ARGV[gang])
  local last = first + tonumber(ARGV[gang + 1]) - 1
  local before = #taken
  for place, found in ipairs(redis.call("MGET", unpack(KEYS, first, last))) do
    if found and found ~= mine then taken[#taken + 1] = first + place - 1 end
  end
  if #taken == before then
    for place = first, last do redis.call("SET", KEYS[place], mine, "PX", ARGV[1]) end
  end
  first = last + 1
end
return taken
