"""Spellings of booleans in settings, in lower case. This module imports nothing, because every CLI command loads it."""

BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1", "t", "y"), True),
    **dict.fromkeys(("false", "no", "off", "0", "f", "n"), False),
}
