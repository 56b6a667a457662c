"""Email service: sends order confirmations."""
