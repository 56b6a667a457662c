"""Shipping service: quotes and shipments."""
