"""Recommends products that go with the given ones."""
