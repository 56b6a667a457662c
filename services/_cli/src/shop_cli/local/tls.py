"""TLS as a client of services."""

from collections.abc import Sequence
from typing import Any

import grpc

from chassis.rpc.credentials import open_channel
from chassis.tls.certificates import Certificates


def raw_channel(
    address: str, certificates: Certificates | None, options: Sequence[tuple[str, Any]] = ()
) -> grpc.aio.Channel:
    """Open a channel that changes nothing about calls; by mutual TLS if there are certificates."""
    return open_channel(address, options, certificates.refresh() if certificates else None)
