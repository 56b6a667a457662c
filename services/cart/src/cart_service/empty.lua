-- Removes a cart. KEYS: the cart. ARGV: optionally the etag that the cart must have.
-- A cart without lines is left alone: its only field is the etag that an order emptied.
local cart, etag = KEYS[1], ARGV[1]
if redis.call('HLEN', cart) > 1 and (not etag or redis.call('HGET', cart, '') == etag) then redis.call('DEL', cart) end
