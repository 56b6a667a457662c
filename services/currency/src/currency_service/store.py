"""Parses rates in the European Central Bank's format: XML with one `Cube` element for the day and one for each rate."""

from datetime import date
from decimal import Decimal
from typing import Annotated
from xml.etree.ElementTree import Element, ParseError

from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped]
from msgspec import Meta, Struct, convert

from chassis.values.money import require_decimal
from currency_service.domain import BASE, RATE_DIGITS, Rates

_CUBE = "{http://www.ecb.int/vocabulary/2002-08-01/eurofxref}Cube"

# Currencies that the ECB once quoted, but that no longer exist.
_ENDED = frozenset({"BGN", "CYP", "EEK", "GRD", "HRK", "LTL", "LVL", "MTL", "ROL", "SIT", "SKK", "TRL"})

_SMALLEST_RATE = Decimal(1).scaleb(-RATE_DIGITS)


class _Quote(Struct, frozen=True):
    currency: Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]
    rate: Decimal

    def __post_init__(self) -> None:
        highest = 10**RATE_DIGITS - _SMALLEST_RATE
        require_decimal("rate", self.rate, lowest=_SMALLEST_RATE, highest=highest, places=RATE_DIGITS)


class _Day(Struct, frozen=True):
    time: date
    rates: Annotated[list[_Quote], Meta(min_length=1)]


def parse_rates(raw: bytes) -> Rates:
    """Parse rates, skipping currencies that no longer exist. Raise ValueError if the file is invalid or has a DTD."""
    days = [cube for cube in _parse_xml(raw).iter(_CUBE) if "time" in cube.attrib]
    if len(days) != 1:
        raise ValueError(f"there must be the rates of one day, not of {len(days)}")
    day = convert({"time": days[0].attrib["time"], "rates": [quote.attrib for quote in days[0]]}, _Day)
    per_euro = {quote.currency: quote.rate for quote in day.rates}
    if len(per_euro) < len(day.rates) or BASE in per_euro:
        raise ValueError("a currency is quoted twice, or the euro itself is quoted")
    return Rates(day.time, {code: rate for code, rate in per_euro.items() if code not in _ENDED})


def _parse_xml(raw: bytes) -> Element:
    try:
        root: Element = fromstring(raw, forbid_dtd=True)
    except (ParseError, LookupError) as error:  # LookupError means that the file's encoding is unknown
        raise ValueError(f"not well-formed XML: {error}") from error
    return root
