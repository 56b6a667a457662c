"""Digests for comparing two services' records without exchanging addresses or recipients."""

import hashlib
from collections.abc import Iterable
from typing import Any

import orjson


def digest(*parts: object) -> bytes:
    """Return a 4-byte digest of texts, numbers, other digests, and dataclasses (by their fields)."""
    return hashlib.sha256(orjson.dumps(parts, bytes.hex)).digest()[:4]


def items_digest(items: Iterable[Any]) -> bytes:
    """Return a digest of the items' products and quantities that doesn't depend on their order."""
    return digest(*sorted((item.product_id, item.quantity) for item in items))
