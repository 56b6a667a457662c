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
    """A certificate, its key and the trusted authorities, all in PEM format."""

    certificate: bytes
    key: bytes = field(repr=False)
    authorities: bytes
    lifetime_seconds: float
    expires_at: float  # the Unix time when the certificate or the last authority expires, whichever is earlier


class Certificates:
    """An identity loaded from a folder, such as a mounted cert-manager Secret. Ignores new files that are unusable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._loaded = self._failed = _versions(folder)
        self.current = _load(folder)
        self.failed_reloads = 0
        self._checked_at = time.monotonic()

    @staticmethod
    @cache  # service settings and telemetry settings load the same folder
    def load(folder: str) -> "Certificates":
        """Load the certificates in a folder. Raise ValueError with the reason if they are unusable."""
        return Certificates(Path(folder))

    def refresh(self) -> Identity:
        """Return the current identity. Check the files for changes at most once a second. Thread-safe."""
        now = time.monotonic()
        if now - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = now  # set this before reloading, so that no other thread reloads at the same time
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
            return  # the files are being replaced right now, so wait for the next check
        if not problem:
            self.current, self._loaded = identity, versions
            log.info("certificates reloaded", expires_at=time.strftime("%FT%TZ", time.gmtime(identity.expires_at)))
            return
        self.failed_reloads += 1  # count every failed check, so that the alert lasts as long as the problem
        if versions != self._failed:
            log.error("certificates not reloaded", folder=str(self.folder), error=problem)
        self._failed = versions


def _versions(folder: Path) -> object:
    """Return a value that changes when any of the files is written, replaced or removed."""
    found = []
    for name in FILES:
        with suppress(OSError):
            status = (folder / name).stat()
            found.append((name, status.st_ino, status.st_mtime_ns, status.st_size))
    return found


def _load(folder: Path) -> Identity:
    """Load the identity in a folder. Raise ValueError if the files are unusable, or ca.crt doesn't verify tls.crt."""
    sides = [ssl.SSLContext(protocol) for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)]
    sides[0].check_hostname = False
    try:
        certificate, key, authorities = ((folder / name).read_bytes() for name in FILES)
        for side in sides:
            side.verify_mode = ssl.CERT_REQUIRED
            side.load_verify_locations(cadata=authorities.decode("ascii"))
            side.load_cert_chain(folder / "tls.crt", folder / "tls.key", password="")  # None would make OpenSSL prompt
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
    # `ends` is empty if ca.crt is a self-signed certificate that isn't a CA.
    expires_at = min(expires_at, max(ends, default=expires_at))
    return Identity(certificate, key, authorities, expires_at - valid_from, expires_at)


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> dict[str, str]:
    """Perform a TLS handshake in memory, so that OpenSSL checks the certificate. Return the certificate's fields."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    connecting = client.wrap_bio(to_client, to_server)
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (connecting, accepting, connecting, accepting):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return dict(connecting.getpeercert() or {})  # type: ignore[arg-type]
