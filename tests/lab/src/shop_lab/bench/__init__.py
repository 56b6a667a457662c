"""Benchmarks of the whole shop."""
