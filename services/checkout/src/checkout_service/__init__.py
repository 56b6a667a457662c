"""Checkout service: places orders."""
