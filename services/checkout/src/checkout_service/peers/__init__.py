"""Adapters to the peers of checkout, over gRPC."""
