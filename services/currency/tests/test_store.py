from datetime import date

import pytest

from chassis.values.money import Money
from currency_service.__main__ import Settings
from currency_service.domain import CurrencyNotSupported
from currency_service.store import parse_rates

ENVELOPE = (
    '<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01" '
    'xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref"><Cube>{}</Cube></gesmes:Envelope>'
)
USD = '<Cube currency="USD" rate="1.25"/>'
ENTITIES = b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
EXTERNAL = b'<!DOCTYPE x SYSTEM "file:///etc/passwd">'


def feed(*quotes: str, day: str = "2025-01-02") -> bytes:
    return ENVELOPE.format(f'<Cube time="{day}">{"".join(quotes)}</Cube>').encode()


def test_the_packaged_file_has_the_published_rates_of_its_day_and_names_its_source() -> None:
    raw = Settings().rates_file.read_bytes()
    rates = parse_rates(raw)
    assert len(rates.codes) == 30
    assert rates.day == date(2026, 10, 30)
    assert rates.convert(Money.of("EUR", 1), "USD") == Money.of("USD", 1, 117_200_000)
    assert b"European Central Bank" in raw


def test_rates_are_parsed_exactly() -> None:
    rates = parse_rates(feed('<Cube currency="USD" rate="1.234567891"/>'))
    assert rates.convert(Money.of("EUR", 1), "USD") == Money.of("USD", 1, 234_567_891)


@pytest.mark.parametrize("ended", ["BGN", "HRK", "LTL", "LVL", "EEK", "SKK", "CYP", "MTL", "SIT", "GRD", "ROL", "TRL"])
def test_a_currency_that_has_ended_is_not_supported_even_if_a_file_has_its_rate(ended: str) -> None:
    rates = parse_rates(feed(USD, f'<Cube currency="{ended}" rate="1.9558"/>', day="2024-12-31"))
    assert rates.codes == ("EUR", "USD")
    with pytest.raises(CurrencyNotSupported):
        rates.convert(Money.of(ended, 1), "EUR")


TWO_DAYS = f'<Cube time="2025-01-02">{USD}</Cube><Cube time="2025-01-03">{USD}</Cube>'


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (feed(USD, '<Cube rate="1"/>'), r"`currency` - at `\$\.rates\[1\]`"),
        (feed(USD, '<Cube currency="JPY"/>'), r"`rate` - at `\$\.rates\[1\]`"),
        (feed(USD, '<Cube currency="yen" rate="1"/>'), r"\$\.rates\[1\]\.currency`"),
        (feed(USD, '<Cube currency="JPY" rate="much"/>'), r"\$\.rates\[1\]\.rate`"),
        *(
            (feed(USD, f'<Cube currency="JPY" rate="{rate}"/>'), r"`rate` must be .* at `\$\.rates\[1\]`")
            for rate in ("0", "-1", "NaN", "0.0000000001")
        ),
        (feed(USD, USD), "quoted twice"),
        (feed(USD, '<Cube currency="EUR" rate="1"/>'), "quoted twice, or the euro"),
        # Files that do not have the rates of exactly one day.
        (feed(), "rates"),
        (feed(USD, day="soon"), "time"),
        (ENVELOPE.format("").encode(), "not of 0"),
        (ENVELOPE.format(TWO_DAYS).encode(), "of 2"),
        (b"<html>moved</html>", "not of 0"),
        *((declaration + feed(USD), "DTDForbidden") for declaration in (ENTITIES, EXTERNAL, b"<!DOCTYPE x>")),
        *((malformed, "well-formed") for malformed in (b"", b"\xff", feed(USD)[:-1], b"<a>" * 50_000)),
        (b'<?xml version="1.0" encoding="nothing"?><a/>', "well-formed|encodings"),
        (b'<?xml version="1.0" encoding="shift_jis"?><a/>', "well-formed|encodings"),
    ],
)
def test_an_invalid_file_is_rejected_with_what_is_invalid(raw: bytes, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_rates(raw)
