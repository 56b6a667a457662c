-- Functions that precede every script. Times are in ms.
-- An anonymous cart has a time to live, so a server whose memory is full may evict the cart (volatile-ttl). A customer's
-- cart has none and is never evicted: an index stores when it expires, and each change to a customer's cart deletes up to
-- two expired carts, unless the server's clock has jumped by more than a day within the last day.
local DAY = 86400000

local function is_customers(cart) return redis.call('PTTL', cart) == -1 end

local function remove(cart, index)
  redis.call('DEL', cart)
  redis.call('ZREM', index, cart)
end

-- The index also holds two times, negative to keep them apart from carts: when the clock was last read, and when it last
-- jumped. They are named like keys that no user has, because the release before deletes them as if they were carts.
local READ, JUMPED = 'cart-key:read', 'cart-key:jumped'

local function is_clock_steady(index, now)
  local read = redis.call('ZSCORE', index, READ) or -now
  if math.abs(now + read) > DAY then redis.call('ZADD', index, -now, JUMPED) end
  redis.call('ZADD', index, -now, READ)
  return now + (redis.call('ZSCORE', index, JUMPED) or 0) > DAY
end

local function restart_lifetime(cart, index, ttl, anonymous_ttl)
  if anonymous_ttl then return redis.call('PEXPIRE', cart, anonymous_ttl) end
  local now = redis.call('TIME')[1] * 1000
  redis.call('PERSIST', cart)
  redis.call('ZADD', index, now + ttl, cart)
  if not is_clock_steady(index, now) then return end
  for _, ended in ipairs(redis.call('ZRANGEBYSCORE', index, 0, now, 'LIMIT', 0, 2)) do remove(ended, index) end
end

