"""`shop prove`: check that orders survive kills, pauses and restarts of every process they depend on.

Simulated customers place orders and retry while a seeded schedule injects faults. Afterwards the ledgers of checkout's
dependencies (charges, shipments, e-mails, carts) are compared with what the customers ordered and with the responses
that they got. Each order has its own card, street and e-mail address, so ledger entries are matched to orders without
relying on any idempotency key.
"""
