"""Simulated customers of the storefront: they browse and order as people do, and measure what a person would see."""
