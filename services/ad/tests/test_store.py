import json
from collections.abc import Mapping

import pytest

from ad_service.__main__ import Settings
from ad_service.domain import Inventory
from ad_service.store import parse_ads

HOUSE = {"redirect_url": "/", "text": "Free shipping"}


def parse(*entries: Mapping[str, object]) -> Inventory:
    return parse_ads(json.dumps([*entries, HOUSE]).encode())


def test_the_packaged_file_covers_at_least_eight_contexts() -> None:
    assert len(parse_ads(Settings().ads_file.read_bytes()).contexts) >= 8


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"redirect_url": "/product/pan"}, r"`text` - at `\$\[0\]`"),
        ({"redirect_url": "/product/pan", "text": " "}, r"\$\[0\]\.text`"),
        ({"redirect_url": "/product/pan", "text": "x" * 121}, r"\$\[0\]\.text`"),
        ({"redirect_url": "https://elsewhere.example/", "text": "Pans"}, r"\$\[0\]\.redirect_url`"),
        ({"redirect_url": "/product/pan", "text": "Pans", "contexts": [""]}, r"\$\[0\]\.contexts\[0\]`"),
        ({"redirect_url": "/product/pan", "text": "Pans", "context": ["kitchen"]}, r"`context` - at `\$\[0\]`"),
    ],
)
def test_an_invalid_entry_is_rejected_with_the_name_of_its_field(entry: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse(entry)


@pytest.mark.parametrize("raw", [b"", b"[{", b"{}", b"\xff"])
def test_anything_but_a_list_of_ads_is_rejected(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"truncated|malformed|Expected `array`"):
        parse_ads(raw)


def test_a_duplicate_ad_is_rejected() -> None:
    with pytest.raises(ValueError, match="twice"):
        parse(HOUSE)
