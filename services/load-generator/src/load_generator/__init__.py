"""Simulated customers of the storefront: they browse and order like people, and measure what a person would see."""
