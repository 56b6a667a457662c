"""Reconciliation: compares the journal with the records of payment, shipping and email."""
