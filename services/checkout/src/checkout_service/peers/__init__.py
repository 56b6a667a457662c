"""gRPC adapters to checkout's peers."""
