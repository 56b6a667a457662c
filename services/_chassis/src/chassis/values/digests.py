"""Digests that let two services compare their records without exchanging addresses or recipients."""

import hashlib
from collections.abc import Iterable
from typing import Any

import orjson

from chassis.values.money import Money

FINGERPRINT_LENGTH = 12
"""The number of characters of a request's fingerprint that checkout sends to payment."""


def digest(*parts: object) -> bytes:
    """Return a 4-byte digest of the parts, which may be strings, numbers, dataclasses and other digests.

    If all parts are empty, the digest is also empty, and comparisons ignore it.
    """
    if not any(parts):
        return b""
    return hashlib.sha256(orjson.dumps(parts, bytes.hex)).digest()[:4]


def items_digest(items: Iterable[Any]) -> bytes:
    """Return a digest of the items' products and quantities, which doesn't depend on the order of the items."""
    return digest(*sorted((item.product_id, item.quantity) for item in items))


def prices_digest(lines: Iterable[Any], shipping_cost: Money) -> bytes:
    """Return a digest of the lines' costs and the shipping cost, which doesn't depend on the order of the lines."""
    return digest(str(shipping_cost), *sorted((line.product_id, line.quantity, str(line.cost)) for line in lines))
