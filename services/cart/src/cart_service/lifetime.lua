-- Functions that precede every script. Times are in ms.
-- An anonymous cart has a time to live, so a server whose memory is full may evict the cart (volatile-ttl). A customer's
-- cart has none and is never evicted: an index stores when it expires, and each change to a customer's cart deletes up to
-- two expired carts.
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

