-- This precedes the scripts that change carts. Times are in ms.
-- An anonymous cart has a time to live: a server whose memory is full may evict it (volatile-ttl). A customer's has none,
-- so it is never evicted: an index has the time when it ends, and each change of a customer's cart deletes two that did.
local function is_customers(cart) return redis.call('PTTL', cart) == -1 end

local function remove(cart, index)
  redis.call('DEL', cart)
  redis.call('ZREM', index, cart)
end

local function restart_lifetime(cart, index, ttl, anonymous_ttl)
  if anonymous_ttl then return redis.call('PEXPIRE', cart, anonymous_ttl) end
  local now = redis.call('TIME')[1] * 1000
  redis.call('PERSIST', cart)
  redis.call('ZADD', index, now + ttl, cart)
  for _, ended in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, 2)) do remove(ended, index) end
end

