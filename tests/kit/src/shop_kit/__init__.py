"""Code shared by the tests of several packages: servers, databases, whole shops, faults. Never part of an image."""
