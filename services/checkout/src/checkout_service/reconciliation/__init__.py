"""Reconciliation: compares the journal with payment, shipping and email records."""
