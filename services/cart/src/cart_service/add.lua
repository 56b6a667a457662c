-- Adds a quantity of a product to a cart, once for each key.
-- KEYS: the cart; perhaps what is known of the addition's key.
-- ARGV: product, quantity, new etag, cart's ms to live, max lines, max quantity; with a key: fingerprint, its ms to live.
-- A cart is a hash of quantities by product; the field without a name is its etag.
local cart, known = KEYS[1], KEYS[2]
local product, quantity, etag, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local max_lines, max_quantity = tonumber(ARGV[5]), tonumber(ARGV[6])

if known then
  local fingerprint = redis.call('GET', known)
  if fingerprint == ARGV[7] then return 'done' end
  if fingerprint then return 'reused' end
end

local before = redis.call('HGET', cart, product)
if not before and redis.call('HLEN', cart) > max_lines then return 'full' end
if before and before + quantity > max_quantity then return 'too large' end

redis.call('HINCRBY', cart, product, quantity)
redis.call('HSET', cart, '', etag)
redis.call('PEXPIRE', cart, ttl)
if known then redis.call('SET', known, ARGV[7], 'PX', ARGV[8]) end
return 'done'
