"""Parses the file of ads: a JSON list of objects with `redirect_url`, `text` and `contexts`."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter

from ad_service.domain import Ad, Inventory

Context = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]
Path = Annotated[str, StringConstraints(pattern=r"^/[!-~]*$", max_length=256)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)]


class _Entry(BaseModel):
    """An ad in the file. `redirect_url` is a path, so that it links to a page of the shop itself."""

    model_config = ConfigDict(extra="forbid")

    redirect_url: Path
    text: Text
    contexts: tuple[Context, ...] = ()


_ENTRIES = TypeAdapter(list[_Entry])


def parse_ads(raw: bytes) -> Inventory:
    """Parse the content of the file. Raise ValueError that names the invalid entry and field."""
    entries = _ENTRIES.validate_json(raw)
    ads = [Ad(entry.redirect_url, entry.text, entry.contexts) for entry in entries]
    if len({(ad.redirect_url, ad.text) for ad in ads}) < len(ads):
        raise ValueError("the file contains an ad twice")
    return Inventory(ads)
