"""Carts, in memory or in Valkey."""
