"""A deterministic simulation of the whole shop: real services on one event loop with a virtual clock."""
