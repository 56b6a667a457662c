"""Shipping quotes and shipments."""
