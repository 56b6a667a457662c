"""Payment service: charges cards, once per idempotency key."""
