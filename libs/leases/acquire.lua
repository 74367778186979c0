-- Take every key of a gang as pending (epoch 0, below every epoch), or none.
-- KEYS: dev:<id> ...   ARGV: grant, ttl in ms.   Returns the positions (from 1) of the keys that another holds.
local mine = string.format("%020d %s", 0, ARGV[1])
local taken = {}
for i, key in ipairs(KEYS) do
  local found = redis.call("GET", key)
  if found and found ~= mine then taken[#taken + 1] = i end
end
if #taken == 0 then
  for _, key in ipairs(KEYS) do redis.call("SET", key, mine, "PX", ARGV[2]) end
end
return taken
