"""Digests by which the records of two services are compared, without addresses or recipients leaving either."""

import hashlib
from collections.abc import Iterable
from typing import Any

import orjson


def digest(*parts: object) -> bytes:
    """Return 4 bytes, equal for equal parts: texts, numbers, digests, dataclasses by their fields in their order."""
    return hashlib.sha256(orjson.dumps(parts, bytes.hex)).digest()[:4]


def items_digest(items: Iterable[Any]) -> bytes:
    """Return a digest of the products and quantities of items, whatever their order."""
    return digest(*sorted((item.product_id, item.quantity) for item in items))
