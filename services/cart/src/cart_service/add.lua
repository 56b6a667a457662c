-- Adds a quantity of a product to a cart, at most once per idempotency key.
-- KEYS: the cart, the index of customers' carts; optionally the idempotency key.
-- ARGV: product, quantity, new etag, lifetime of a customer's cart, lifetime of an anonymous cart ('' if the addition is
-- not anonymous), max lines, max quantity; with an idempotency key also the addition's fingerprint and the key's lifetime.
-- Returns 'repeated' if an earlier call with the same key made the same addition.
-- A cart is a hash that maps products to quantities. The field with the empty name holds the cart's etag, whose first 16
-- characters are the generation. The first addition to an empty cart begins a new generation.
local cart, index, key = KEYS[1], KEYS[2], KEYS[3]
local product, quantity, etag, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local max_lines, max_quantity = tonumber(ARGV[6]), tonumber(ARGV[7])

if key then
  local fingerprint = redis.call('GET', key)
  if fingerprint == ARGV[8] then return 'repeated' end
  if fingerprint then return 'reused' end
end

local before = redis.call('HGET', cart, product)
if not before and redis.call('HLEN', cart) > max_lines then return 'full' end
if before and before + quantity > max_quantity then return 'too large' end

local anonymous_ttl = ARGV[5] ~= '' and not is_customers(cart) and ARGV[5]
local previous = redis.call('HLEN', cart) > 1 and redis.call('HGET', cart, '') or etag
redis.call('HINCRBY', cart, product, quantity)
redis.call('HSET', cart, '', string.sub(previous, 1, 16) .. string.sub(etag, 17))
restart_lifetime(cart, index, ttl, anonymous_ttl)
if key then redis.call('SET', key, ARGV[8], 'PX', ARGV[9]) end
return 'done'
