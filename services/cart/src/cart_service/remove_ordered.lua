-- Removes what an order bought, if the cart still has the ordered generation. Then begins a new generation, so a repeat
-- has no effect, and the cart becomes a customer's cart.
-- KEYS: the cart, the index of customers' carts.
-- ARGV: ordered etag or generation, new etag, lifetime of a customer's cart; then product and quantity of each ordered line.
-- If the order emptied the cart, the hash keeps only the field with the empty name: the ordered etag or generation.
local cart, index = KEYS[1], KEYS[2]
local ordered, etag, ttl = ARGV[1], ARGV[2], ARGV[3]

local current = redis.call('HGET', cart, '')
if not current or string.sub(current, 1, 16) ~= string.sub(ordered, 1, 16) then return end
if redis.call('HLEN', cart) == 1 then return end

for i = 4, #ARGV, 2 do
  if redis.call('HINCRBY', cart, ARGV[i], -ARGV[i + 1]) < 1 then redis.call('HDEL', cart, ARGV[i]) end
end
redis.call('HSET', cart, '', redis.call('HLEN', cart) > 1 and etag or ordered)
restart_lifetime(cart, index, ttl)
