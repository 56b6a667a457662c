-- Removes what an order bought from a cart, once per order id.
-- KEYS: the cart; the ids of the user's latest orders.
-- ARGV: order id, ordered etag, new etag, lifetime of the cart in ms, lifetime of the order ids in ms, maximum number of
-- order ids; then product and quantity of each ordered line.
-- A cart that becomes empty remains as a hash with only the field of the empty name: the ordered etag.
local cart, orders = KEYS[1], KEYS[2]
local order, ordered_etag, etag, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('LPOS', orders, order) then return end
redis.call('LPUSH', orders, order)
redis.call('LTRIM', orders, 0, ARGV[6] - 1)
redis.call('PEXPIRE', orders, ARGV[5])

local lines = redis.call('HLEN', cart) - 1
if lines < 1 then return end
local changed = false
if redis.call('HGET', cart, '') == ordered_etag then
  redis.call('DEL', cart)
  changed, lines = true, 0
else
  for i = 7, #ARGV, 2 do
    local product, quantity = ARGV[i], ARGV[i + 1]
    local before = redis.call('HGET', cart, product)
    if before then
      changed = true
      if redis.call('HINCRBY', cart, product, -quantity) < 1 then
        redis.call('HDEL', cart, product)
        lines = lines - 1
      end
    end
  end
end

if changed then
  redis.call('HSET', cart, '', lines > 0 and etag or ordered_etag)
  redis.call('PEXPIRE', cart, ttl)
end
