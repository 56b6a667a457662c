"""Who may call what: the methods that each caller, known by the SPIFFE ID of its certificate, may call."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

_SPIFFE_ID = re.compile(r"spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+)+")
_METHOD = re.compile(r"[A-Za-z_][\w.]*/\w+", re.ASCII)


@dataclass(frozen=True)
class Callers:
    """The full names of methods, such as `shop.CartService/GetCart`, by caller."""

    methods: Mapping[str, frozenset[str]]

    def of(self, method: str) -> frozenset[bytes]:
        """Return the SPIFFE IDs that may call a method."""
        return frozenset(caller.encode() for caller, methods in self.methods.items() if method in methods)

    def unknown(self, served: Iterable[str]) -> list[str]:
        """Return the methods in the table that are not among those served."""
        return sorted(frozenset().union(*self.methods.values()) - set(served))


def parse_callers(text: str) -> Callers:
    """Parse a JSON object of lists. Raise ValueError that names what is wrong."""
    try:
        table = msgspec.json.decode(text, type=dict[str, frozenset[str]])
    except msgspec.DecodeError as error:  # of which a ValidationError is one
        raise ValueError(f"must be a JSON object of SPIFFE IDs with lists of methods: {error}") from None
    for caller, methods in table.items():
        if not _SPIFFE_ID.fullmatch(caller):
            raise ValueError(f"{caller!r} must be a SPIFFE ID such as spiffe://cluster.local/ns/shop/sa/shop-cart")
        for method in methods:
            if not _METHOD.fullmatch(method):
                raise ValueError(f"{method!r} must be a full name such as shop.CartService/GetCart")
    return Callers(table)
