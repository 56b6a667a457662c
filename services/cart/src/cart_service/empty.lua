-- Removes a cart if its etag is the given one. KEYS: the cart. ARGV: the etag.
if redis.call('HGET', KEYS[1], '') == ARGV[1] then redis.call('DEL', KEYS[1]) end
