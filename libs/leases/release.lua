-- Give keys back: each is deleted only while it still says exactly this grant and epoch.
-- KEYS: dev:<id> ...   ARGV: one lease a key.   Returns how many were deleted.
local gone = 0
for i, key in ipairs(KEYS) do
  if redis.call("GET", key) == ARGV[i] then gone = gone + redis.call("DEL", key) end
end
return gone
