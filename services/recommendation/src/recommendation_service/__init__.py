"""Recommends products that go with given products."""
