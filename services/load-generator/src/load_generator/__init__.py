"""Simulated customers who use the storefront as real people do, and measure what people would experience."""
