"""Converts entries of the manifest to rows of the table `shipments` and back."""

from typing import Any

import orjson

from shipping_service.domain import Address, Entry, Item, Parcel


def entry_to_row(entry: Entry) -> dict[str, Any]:
    """Return the values of an entry's columns by name."""
    return {
        "shipment_key": entry.key,
        "state": "FENCED" if entry.parcel is None else "SHIPPED",
        "tracking_id": entry.tracking_id,
        "parcel": None if entry.parcel is None else orjson.dumps(entry.parcel).decode(),
    }


def entry_from_row(key: str, parcel: str | None) -> Entry:
    """Return the entry of a key with the stored JSON of its parcel."""
    if parcel is None:
        return Entry(key)
    stored = orjson.loads(parcel)
    items = tuple(Item(**item) for item in stored["items"])
    return Entry(key, Parcel(Address(**stored["address"]), items))
