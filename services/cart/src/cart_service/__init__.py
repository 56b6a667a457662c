"""Carts, in memory, in Valkey or in PostgreSQL."""
