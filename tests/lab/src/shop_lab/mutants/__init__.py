"""Mutations that remove one safety device each, to show that the tests need it."""
