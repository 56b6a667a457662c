"""The `shop` command."""
