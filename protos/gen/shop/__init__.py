"""Generated from protos/shop by `make protos`; do not edit."""
