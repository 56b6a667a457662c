"""What the tests of several packages share: servers, databases, whole shops and fault scenarios. No image contains it."""
