"""The certificate of a process, which is replaced on disk while the process runs."""

import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from chassis.lazy_log import log

FILES = ("tls.crt", "tls.key", "ca.crt")
_CHECK_SECONDS = 1.0


@dataclass(frozen=True)
class Identity:
    """A certificate with its key and the authorities whose certificates are accepted, all in PEM.

    `expires_at` is when the certificate, or the last of the authorities, ends: in seconds since 1970.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    authorities: bytes
    valid_from: float
    expires_at: float


class Certificates:
    """The identity in a folder with tls.crt, tls.key and ca.crt, such as a mounted Secret of cert-manager.

    Files that are replaced by unusable ones change nothing: the identity stays as it was.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._loaded = self._failed = _versions(folder)
        self.current = _load(folder)
        self.failed_reloads = 0
        self._checked_at = time.monotonic()

    @staticmethod
    @cache  # the settings of a service and those of its telemetry share one object, so that files are read once
    def load(folder: str) -> "Certificates":
        """Return the certificates in a folder. Raise ValueError that says what is wrong with them."""
        return Certificates(Path(folder))

    def refresh(self) -> Identity:
        """Return the present identity, after a look at the files if the last one was a second ago. From any thread."""
        now = time.monotonic()
        if now - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = now  # first, so that no other thread looks meanwhile
            self._reload()
        return self.current

    def _reload(self) -> None:
        versions = _versions(self.folder)
        if versions == self._loaded:
            return
        try:
            identity, problem = _load(self.folder), ""
        except ValueError as error:
            identity, problem = self.current, str(error)
        if versions != _versions(self.folder):
            return  # they are being replaced: the next look finds them complete
        if not problem:
            self.current, self._loaded = identity, versions
            log.info("certificates reloaded", expires_at=time.strftime("%FT%TZ", time.gmtime(identity.expires_at)))
            return
        self.failed_reloads += 1  # again at each look, so that an alert lasts as long as the problem
        if versions != self._failed:
            log.error("certificates not reloaded", folder=str(self.folder), error=problem)
        self._failed = versions


def _versions(folder: Path) -> object:
    """Return what changes whenever a file is written, replaced or removed."""
    found = []
    for name in FILES:
        with suppress(OSError):
            status = (folder / name).stat()
            found.append((name, status.st_ino, status.st_mtime_ns, status.st_size))
    return found


def _load(folder: Path) -> Identity:
    """Read an identity. Raise ValueError unless a peer with the same files would accept it now."""
    sides = [ssl.SSLContext(protocol) for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)]
    sides[0].check_hostname = False
    try:
        certificate, key, authorities = ((folder / name).read_bytes() for name in FILES)
        for side in sides:
            side.verify_mode = ssl.CERT_REQUIRED
            side.load_verify_locations(cadata=authorities.decode("ascii"))
            side.load_cert_chain(folder / "tls.crt", folder / "tls.key", password="")  # or OpenSSL would prompt for it
        own = _handshake(*sides)
    except ssl.SSLCertVerificationError as error:
        raise ValueError(f"tls.crt is not valid by ca.crt: {error.verify_message}") from None
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not PEM"
        raise ValueError(f"tls.crt, tls.key and ca.crt are no certificates with their key: {reason}") from None
    except OSError as error:
        raise ValueError(f"must be a folder with {', '.join(FILES)}: {error.strerror}") from None
    valid_from, expires_at = (ssl.cert_time_to_seconds(own[name]) for name in ("notBefore", "notAfter"))
    ends = [ssl.cert_time_to_seconds(str(found["notAfter"])) for found in sides[0].get_ca_certs()]
    # There are none if the certificate is its own authority.
    return Identity(certificate, key, authorities, valid_from, min(expires_at, max(ends, default=expires_at)))


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> dict[str, str]:
    """Connect both sides in memory, so that OpenSSL checks all that peers will. Return the certificate's fields."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    connecting = client.wrap_bio(to_client, to_server)
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (connecting, accepting, connecting, accepting):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return dict(connecting.getpeercert() or {})  # type: ignore[arg-type]
