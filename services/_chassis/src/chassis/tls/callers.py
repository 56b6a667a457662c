"""Who may call what: the full names of methods, by the SPIFFE ID in the caller's certificate."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import msgspec

Callers: TypeAlias = Mapping[str, AbstractSet[str]]

_SPIFFE_ID = re.compile(r"spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+)+")
_METHOD = re.compile(r"[A-Za-z_][\w.]*/\w+", re.ASCII)


def parse_callers(text: str) -> Callers:
    """Parse a JSON object of lists. Raise ValueError that names what is wrong."""
    try:
        table = msgspec.json.decode(text, type=dict[str, frozenset[str]])
    except msgspec.DecodeError as error:
        raise ValueError(f"must be a JSON object of SPIFFE IDs with lists of methods: {error}") from None
    for caller, methods in table.items():
        if not _SPIFFE_ID.fullmatch(caller):
            raise ValueError(f"{caller!r} must be a SPIFFE ID such as spiffe://cluster.local/ns/shop/sa/shop-cart")
        for method in methods:
            if not _METHOD.fullmatch(method):
                raise ValueError(f"{method!r} must be a full name such as shop.CartService/GetCart")
    return table
