"""Products that go with the given ones."""
