"""Card charges and their ledger."""
