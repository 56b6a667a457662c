"""gRPC servers and clients."""
