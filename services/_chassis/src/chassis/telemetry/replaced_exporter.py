"""Certificate metrics, and exporters that follow certificate changes: OpenTelemetry reads certificates only once."""

from collections.abc import Callable
from typing import Any

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.tls.certificates import Certificates


class ReplacedExporter:
    """Wraps an OpenTelemetry exporter, and recreates it when the certificates have changed."""

    def __init__(self, create: Callable[[], Any], certificates: Certificates) -> None:
        self._create = create
        self._certificates = certificates
        self._identity = certificates.refresh()
        self._exporter = create()

    def export(self, batch: Any, **options: Any) -> Any:
        if (identity := self._certificates.refresh()) is not self._identity:
            replaced, self._exporter, self._identity = self._exporter, self._create(), identity
            replaced.shutdown()  # no export uses it now: a signal's exports never overlap
        return self._exporter.export(batch, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exporter, name)


def observe_certificates(telemetry: Telemetry, certificates: Certificates) -> None:
    def lifetime() -> float:
        return certificates.current.expires_at - certificates.current.valid_from

    # Call refresh() here, because a process that neither serves nor makes calls never reloads the files otherwise.
    telemetry.observe(semconv.CERTIFICATE_EXPIRY, lambda: [(certificates.refresh().expires_at, ())])
    telemetry.observe(semconv.CERTIFICATE_LIFETIME, lambda: [(lifetime(), ())])
    telemetry.observe(semconv.FAILED_RELOADS, lambda: [(certificates.failed_reloads, ())])
