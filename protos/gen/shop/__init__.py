"""Generated from protos/shop: `make protos` writes it anew."""
