"""Booleans as people write them in variables, in lower case; without imports, because every command needs them."""

BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1", "t", "y"), True),
    **dict.fromkeys(("false", "no", "off", "0", "f", "n"), False),
}
