"""Simulated customers who use the storefront as people do, and measure what people would experience."""
