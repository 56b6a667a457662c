"""`shop prove`: whether orders survive kills, pauses and restarts of every process they need.

Customers order and try again while a seeded schedule does harm; afterwards the ledgers of those whom checkout calls
(charges, shipments, e-mails, carts) are compared with what the customers wanted and were told. Each order has a card,
a street and an e-mail address of its own, so that the ledgers join without anybody's keys.
"""
