"""Countries and their formats of postal codes, which the contract stores as integers.

A line of `countries.csv` has the English name (CLDR), the formats of postal codes, shortest first, with a `#` for each
digit, the codes of ISO 3166, and other spellings. Formats are missing if codes have letters or don't exist.
"""

import re
from pathlib import Path


def normalize_country(country: str) -> str:
    """Return a country in lower case, without dots and with single spaces: `U.S.` becomes `us`."""
    return " ".join(country.casefold().replace(".", "").split())


def postal_formats(country: str) -> list[str] | None:
    """Return the formats of a country's postal codes, by its name or code; None if there is no such country."""
    return _FORMATS.get(normalize_country(country))


def format_postal_code(code: int, country: str) -> str:
    """Return a code with its country's zeros and separators: 2134 is `02134` in the US. 0 becomes an empty text."""
    formats = (code and postal_formats(country)) or ()
    found = next((pattern for pattern in formats if pattern.count("#") >= len(str(code))), "")
    digits = iter(str(code).zfill(found.count("#")))
    return re.sub("#", lambda _: next(digits), found) or str(code or "")


_LINES = [line.split(";") for line in Path(__file__).with_name("countries.csv").read_text("utf-8").splitlines()]
_FORMATS = {
    normalize_country(spelling): formats.split("|") if formats else []
    for name, formats, *others in _LINES
    for spelling in (name, *others)
}
COUNTRY_NAMES = tuple(name for name, *_ in _LINES)
"""In alphabetical order."""
