"""Makes characters visible that would steer a terminal or reorder what a person reads."""

import re

# Controls of both sets but tab and line feed, line separators, and everything that changes the direction of text.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""Return text in which each of these characters is its escape in JSON, such as `\u009b`."""
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
