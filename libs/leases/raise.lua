-- Raise each key to its lease (20 digits of epoch, a space, the grant) with a fresh ttl; a key only rises in epoch.
-- KEYS: dev:<id> ...   ARGV: ttl in ms, then one lease a key.
-- Returns two lists: positions (from 1) of keys that were not there, and position, value of each that stands higher.
-- Epochs are compared as 20 digits: Lua's numbers are exact to 2^53 only. Equal epochs of two grants are "higher" too.
local missing, higher = {}, {}
for i, key in ipairs(KEYS) do
  local lease = ARGV[i + 1]
  local found = redis.call("GET", key)
  if not found then missing[#missing + 1] = i end
  if found and found ~= lease and string.sub(found, 1, 20) >= string.sub(lease, 1, 20) then
    higher[#higher + 1] = i
    higher[#higher + 1] = found
  else
    redis.call("SET", key, lease, "PX", ARGV[1])
  end
end
return { missing, higher }
