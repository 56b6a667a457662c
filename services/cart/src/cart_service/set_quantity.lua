-- Sets the quantity of a product that is in a cart. The cart keeps its generation.
-- KEYS: the cart, the index of customers' carts.
-- ARGV: product, quantity, new etag, lifetime of a customer's cart, lifetime of an anonymous cart.
local cart, index = KEYS[1], KEYS[2]
local product, quantity, etag, ttl = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

if redis.call('HEXISTS', cart, product) == 0 then return end
if quantity > 0 then
  redis.call('HSET', cart, product, quantity)
else
  redis.call('HDEL', cart, product)
  if redis.call('HLEN', cart) == 1 then
    remove(cart, index)
    return
  end
end
local previous = redis.call('HGET', cart, '') or etag
redis.call('HSET', cart, '', string.sub(previous, 1, 16) .. string.sub(etag, 17))
restart_lifetime(cart, index, ttl, not is_customers(cart) and ARGV[5])
