import unicodedata

import pytest

from chassis.values.countries import COUNTRY_NAMES, format_postal_code, normalize_country, postal_formats


@pytest.mark.parametrize(
    ("code", "country", "shown"),
    [
        (2134, "United States", "02134"),
        (2134, "U.S.", "02134"),
        (21341234, "USA", "02134-1234"),
        (1067, "germany", "01067"),
        (600001, "JP", "060-0001"),
        (1310100, "Brazil", "01310-100"),
        (950, "POL", "00-950"),
        (11455, "Sweden", "114 55"),
        (800, "AU", "0800"),
        (12345, "Austria", "12345"),  # too long for an Austrian code
        (2134, "United Kingdom", "2134"),
        (2134, "Atlantis", "2134"),
        (0, "Germany", ""),
    ],
)
def test_a_postal_code_has_the_zeros_and_separators_of_its_country(code: int, country: str, shown: str) -> None:
    assert format_postal_code(code, country) == shown


def test_countries_are_listed_once_by_name() -> None:
    assert list(COUNTRY_NAMES) == sorted(set(COUNTRY_NAMES), key=lambda name: unicodedata.normalize("NFKD", name))


def test_spellings_of_a_country_are_normalized_and_have_one_list_of_formats() -> None:
    assert {normalize_country(name) for name in ("U.S.A.", "usa", " Usa ")} == {"usa"}
    assert normalize_country("United\u00a0 States") == "united states"
    assert postal_formats("uk") == postal_formats("GBR") == postal_formats("Great Britain") == []
    assert postal_formats("us") == postal_formats("United States of America") == ["#####", "#####-####"]
    assert postal_formats("Atlantis") is None
