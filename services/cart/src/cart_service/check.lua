-- Fails if additions would: in cluster mode, on a read-only replica, or without a permission. Changes no cart.
-- KEYS: a cart that no user can have, the index of customers' carts, an idempotency key of that cart.
is_customers(KEYS[1])
local now = redis.call('TIME')[1] * 1000
remove(KEYS[1], KEYS[2])
redis.call('DEL', KEYS[3])
-- Otherwise a day without changes would look like a jump of the clock. As a script's first write, this would fail on a
-- server whose memory is full; each hour is enough, because each time is a write to disk.
local read = redis.call('ZSCORE', KEYS[2], READ)
if read and math.abs(now + read) > DAY / 24 then is_clock_steady(KEYS[2], now) end
