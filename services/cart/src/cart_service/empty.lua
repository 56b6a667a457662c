-- Removes a cart. KEYS: the cart, the index of customers' carts. ARGV: optionally the etag that the cart must have.
-- An empty cart is left unchanged: its only field is the etag of the order that emptied the cart.
local cart, etag = KEYS[1], ARGV[1]
if redis.call('HLEN', cart) > 1 and (not etag or redis.call('HGET', cart, '') == etag) then remove(cart, KEYS[2]) end
