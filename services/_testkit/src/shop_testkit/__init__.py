"""Shared by the tests of several packages: servers, databases, whole shops, fault scenarios. Never in an image."""
