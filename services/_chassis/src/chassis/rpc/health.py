"""Health by gRPC's health protocol: liveness of the process, and readiness of its services."""

from collections.abc import Iterable

import structlog
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio

from chassis.errors import DomainError
from chassis.process import ReadinessCheck

log = structlog.get_logger()

# Kubernetes restarts a pod that is not live. Readiness must not decide that: a restart does not repair a store.
LIVENESS = "liveness"
# One slow response of a store must not make a service's only pod unready; calls report a store that is down anyway.
_CHECKS_UNTIL_NOT_READY = 3


class Readiness:
    """Whether a service should receive calls, by its checks: it is ready while it has none."""

    def __init__(self) -> None:
        self.checks: list[ReadinessCheck] = []
        self._failures = _CHECKS_UNTIL_NOT_READY - 1  # before the first success, one failure is enough

    async def check(self) -> bool:
        """Run the checks. Return False after three failures in a row."""
        try:
            for check in self.checks:
                await check()
        except DomainError as error:
            self._failures += 1
            log.warning("not ready", reason=error.reason, failed_checks=self._failures)
        else:
            self._failures = 0
        return self._failures < _CHECKS_UNTIL_NOT_READY


class Health(health_aio.HealthServicer):
    """The health service of one port."""

    async def set_live(self) -> None:
        await self.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)

    async def set_readiness(self, services: Iterable[str], *, ready: bool) -> None:
        """Report the readiness of these services, and of the whole process under the empty name."""
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *services):
            await self.set(name, status)
