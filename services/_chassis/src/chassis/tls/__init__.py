"""Mutual TLS between services."""
