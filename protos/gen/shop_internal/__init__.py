"""Generated from protos/shop_internal: `make protos` writes it anew."""
