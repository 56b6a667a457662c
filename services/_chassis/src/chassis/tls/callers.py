from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

Callers: TypeAlias = Mapping[str, AbstractSet[str]]
"""Maps each caller (the SPIFFE ID or a DNS name in its client certificate) to the methods that it may call."""

_SPIFFE_ID = r"spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+)+"
# Require a dot, because a short name such as `shop-cart` may exist in several Kubernetes namespaces.
_DNS_NAME = r"[a-z0-9-]+(\.[a-z0-9-]+)+"
_Caller: TypeAlias = Annotated[str, Meta(pattern=rf"^({_SPIFFE_ID}|{_DNS_NAME})\Z")]
_Method: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*/[A-Za-z0-9_]+\Z")]


def parse_callers(text: str) -> Callers:
    """Parse a JSON object that maps callers to lists of methods. Raise ValueError with the reason if this fails."""
    try:
        return msgspec.json.decode(text, type=dict[_Caller, frozenset[_Method]])
    except msgspec.DecodeError as error:
        example = '{"spiffe://cluster.local/ns/shop/sa/shop-checkout": ["shop.CartService/GetCart"]}'
        raise ValueError(f"must be a JSON object such as {example}: {error}") from None
