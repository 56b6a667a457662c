"""Booleans as people write them in variables, in lower case; imports nothing, because every command needs it."""

BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1", "t", "y"), True),
    **dict.fromkeys(("false", "no", "off", "0", "f", "n"), False),
}
