"""A model of orders in TLA+, checked with TLC."""
