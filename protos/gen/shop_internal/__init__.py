"""Generated from protos/shop_internal by `make protos`; do not edit."""
