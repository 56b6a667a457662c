-- Fails if additions would: in cluster mode, on a read-only replica, or without a permission. Changes no cart. Notes the
-- time, because a day without changes would otherwise look like a jump of the clock.
-- KEYS: a cart that no user can have, the index of customers' carts, an idempotency key of that cart.
is_customers(KEYS[1])
local now = redis.call('TIME')[1] * 1000
if redis.call('EXISTS', KEYS[2]) == 1 then is_clock_steady(KEYS[2], now) end
remove(KEYS[1], KEYS[2])
redis.call('DEL', KEYS[3])
