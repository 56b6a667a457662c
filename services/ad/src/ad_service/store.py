"""Parses the ads file: a JSON list of objects with `redirect_url`, `text` and `contexts`."""

from typing import Annotated

from msgspec import Meta, Struct, json

from ad_service.domain import Ad, Inventory

Context = Annotated[str, Meta(pattern=r"\S", max_length=64)]
Path = Annotated[str, Meta(pattern=r"^/[!-~]*\Z", max_length=256)]
Text = Annotated[str, Meta(pattern=r"\S", max_length=120)]


class _Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """An ad in the file. `redirect_url` is a path, so ads can only link to the shop's own pages."""

    redirect_url: Path
    text: Text
    contexts: tuple[Context, ...] = ()


def parse_ads(raw: bytes) -> Inventory:
    """Parse the file. Raise a ValueError that names the invalid entry and field."""
    ads = [_to_ad(entry) for entry in json.decode(raw, type=list[_Entry])]
    if len({(ad.redirect_url, ad.text) for ad in ads}) < len(ads):
        raise ValueError("the file contains an ad twice")
    return Inventory(ads)


def _to_ad(entry: _Entry) -> Ad:
    return Ad(entry.redirect_url, entry.text.strip(), tuple(context.strip() for context in entry.contexts))
