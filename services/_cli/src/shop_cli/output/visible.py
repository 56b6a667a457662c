import re

# Line separators, characters that change text direction, and control characters other than tab and line feed.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""Replace characters that could control the terminal or reorder text with JSON escapes such as `\u009b`."""
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
