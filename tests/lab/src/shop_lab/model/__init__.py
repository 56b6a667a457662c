"""A model of orders in TLA+, checked with TLC, and runs of the code compared with it."""
