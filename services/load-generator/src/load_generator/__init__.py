"""Simulates customers who use the storefront as real people would, and measures response times and errors."""
