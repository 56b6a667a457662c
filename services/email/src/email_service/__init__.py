"""Order confirmations by e-mail."""
