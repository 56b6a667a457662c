-- Fails if additions would: in cluster mode, on a read-only replica, or without a permission. Changes nothing.
-- KEYS: a cart that no user can have, the index of customers' carts, an idempotency key of that cart.
is_customers(KEYS[1])
redis.call('TIME')
remove(KEYS[1], KEYS[2])
redis.call('DEL', KEYS[3])
