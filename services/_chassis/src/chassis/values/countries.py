"""Countries and their postal code formats. The API represents postal codes as integers.

Each line of `countries.csv` has a country's English name (CLDR), its postal code formats (shortest first, with a `#`
for each digit), its ISO 3166 codes and other spellings. Countries without numeric postal codes have no formats.
"""

import re
from pathlib import Path


def normalize_country(country: str) -> str:
    """Convert a country's name to lower case, remove dots and collapse spaces: `U.S.` becomes `us`."""
    return " ".join(country.casefold().replace(".", "").split())


def postal_formats(country: str) -> list[str] | None:
    """Return the postal code formats of a country, given its name or code, or None if the country is unknown."""
    return _FORMATS.get(normalize_country(country))


def format_postal_code(code: int, country: str) -> str:
    """Format a postal code, adding leading zeros and separators: 2134 in the US becomes `02134`. 0 becomes ""."""
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
COUNTRY_NAMES = tuple(name for name, *_ in _LINES)  # in alphabetical order
