"""Digests that let two services compare their records without exchanging addresses or recipients."""

import hashlib
from collections.abc import Iterable
from typing import Any

import orjson


def digest(*parts: object) -> bytes:
    """Return a 4-byte digest of the parts, which may be strings, numbers, dataclasses and other digests."""
    return hashlib.sha256(orjson.dumps(parts, bytes.hex)).digest()[:4]


def items_digest(items: Iterable[Any]) -> bytes:
    """Return a digest of the items' products and quantities, whatever the order of the items."""
    return digest(*sorted((item.product_id, item.quantity) for item in items))
