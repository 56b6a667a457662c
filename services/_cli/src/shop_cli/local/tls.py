"""TLS as a client: plain gRPC channels, and what is wrong when no connection can be made."""

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from chassis.errors import InvalidArgument
from chassis.rpc.credentials import open_channel
from chassis.tls.certificates import Certificates

_TIMEOUT_SECONDS = 2.0
_NEEDS_TLS = "it requires TLS: set TLS_FOLDER to a folder with your tls.crt and tls.key, and its ca.crt"
_NO_TLS = "it uses no TLS: unset TLS_FOLDER"


def raw_channel(address: str, tls_folder: Path | None, options: Sequence[tuple[str, Any]] = ()) -> grpc.aio.Channel:
    """Open a channel that changes nothing about calls; by mutual TLS if there is a folder with a certificate."""
    certificates = load_certificates(tls_folder)
    return open_channel(address, options, certificates.current if certificates else None)


def load_certificates(tls_folder: Path | None) -> Certificates | None:
    """Load the certificates in a folder, if there is one. Raise InvalidArgument that says what is wrong with them."""
    try:
        return Certificates.load(str(tls_folder)) if tls_folder else None
    except ValueError as error:
        raise InvalidArgument.field("TLS_FOLDER", f"{tls_folder} {error}") from error


def tls_problem(address: str, tls_folder: Path | None, server_name: str = "") -> str:
    """Return why this client and the server at `host:port` can't agree on TLS; "" if that is not the problem."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if tls_folder:
        context.load_verify_locations(tls_folder / "ca.crt")
        context.load_cert_chain(tls_folder / "tls.crt", tls_folder / "tls.key")
    else:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=server_name or host.strip("[]")) as encrypted,
        ):
            # With TLS 1.3 a server looks at its client's certificate when that has finished the handshake.
            is_accepted = bool(encrypted.recv(1))
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message.rstrip(".")
        return f"its certificate is not valid here, {reason}: are TLS_FOLDER and TLS_RELEASE those of its shop?"
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return _NO_TLS if tls_folder else ""
        is_accepted = False
    except OSError:
        return ""
    if tls_folder is None:
        return _NEEDS_TLS
    return "" if is_accepted else f"it refuses the certificate in {tls_folder}: has it expired, or another authority?"
