import json
from collections.abc import Mapping

import pytest

from ad_service.__main__ import Settings
from ad_service.store import parse_ads

HOUSE = {"redirect_url": "/", "text": "Free shipping"}


def file(entry: Mapping[str, object]) -> bytes:
    return json.dumps([entry, HOUSE]).encode()


def test_the_packaged_file_covers_at_least_eight_contexts() -> None:
    assert len(parse_ads(Settings().ads_file.read_bytes())._by_context) >= 8


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (file({"redirect_url": "/product/pan"}), r"`text` - at `\$\[0\]`"),
        (file({"redirect_url": "/product/pan", "text": " "}), r"\$\[0\]\.text`"),
        (file({"redirect_url": "/product/pan", "text": "x" * 121}), r"\$\[0\]\.text`"),
        (file({"redirect_url": "https://elsewhere.example/", "text": "Pans"}), r"\$\[0\]\.redirect_url`"),
        (file({"redirect_url": "/product/pan", "text": "Pans", "contexts": [""]}), r"\$\[0\]\.contexts\[0\]`"),
        (file({"redirect_url": "/product/pan", "text": "Pans", "context": ["kitchen"]}), r"`context` - at `\$\[0\]`"),
        (file(HOUSE), "twice"),
        *((raw, r"truncated|malformed|Expected `array`") for raw in (b"", b"[{", b"{}", b"\xff")),
    ],
)
def test_an_invalid_file_is_rejected_with_what_is_invalid(raw: bytes, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_ads(raw)
