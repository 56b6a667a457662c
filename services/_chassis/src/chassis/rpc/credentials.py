"""gRPC's credentials of mutual TLS, from certificates that are replaced while a process runs."""

from collections.abc import Sequence
from typing import Any

import grpc

from chassis.tls.certificates import Certificates, Identity


def server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Return credentials that require a client certificate. Each new connection is served with the present files."""
    served: Identity | None = None

    def changed() -> Any:
        """Return what changed since the last connection, None for nothing; gRPC calls this for each connection."""
        nonlocal served
        present = certificates.refresh()
        if present is served:
            return None
        served = present
        return grpc.ssl_server_certificate_configuration([(present.key, present.certificate)], present.authorities)

    return grpc.dynamic_ssl_server_credentials(changed(), changed, require_client_authentication=True)


def open_channel(target: str, identity: Identity | None, options: Sequence[tuple[str, Any]] = ()) -> grpc.aio.Channel:
    """Open a channel, by mutual TLS if there is an identity. It keeps that one: gRPC's clients can't replace it."""
    if identity is None:
        return grpc.aio.insecure_channel(target, options=options)
    credentials = grpc.ssl_channel_credentials(identity.authorities, identity.key, identity.certificate)
    return grpc.aio.secure_channel(target, credentials, options=options)
