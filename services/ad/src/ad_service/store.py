"""Parses the ads file: a JSON list of objects with the fields of `Ad`."""

from msgspec import json

from ad_service.domain import Ad, Inventory


def parse_ads(raw: bytes) -> Inventory:
    """Parse the file. Raise a ValueError that names the invalid entry and field."""
    ads = json.decode(raw, type=list[Ad])
    if len({(ad.redirect_url, ad.text.strip()) for ad in ads}) < len(ads):
        raise ValueError("the file contains an ad twice")
    return Inventory(ads)
