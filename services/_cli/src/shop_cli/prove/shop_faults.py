"""How each kind of fault is done to a shop under test."""

import asyncio
from collections.abc import Mapping

from shop_cli.local.control import ControllableProcess
from shop_cli.prove.fault_plan import Fault, FaultKind
from shop_cli.prove.postgres_cluster import PostgresCluster


class ShopFaults:
    """Injects faults into processes.

    Args:
        processes: by the names that faults have as targets.
        ready_seconds: how long a process may take to be ready again.

    Attributes:
        lagging_failovers: the number of failovers in which no standby had all of the primary's log.
    """

    def __init__(self, processes: Mapping[str, ControllableProcess], ready_seconds: float) -> None:
        self.lagging_failovers = 0
        self._processes = processes
        self._ready_seconds = ready_seconds

    async def inject(self, fault: Fault) -> None:
        """Inject a fault; return once its target is ready again."""
        process = self._processes[fault.target]
        match fault.kind:
            case FaultKind.PAUSE:
                process.pause()
                await asyncio.sleep(fault.seconds)
                process.resume()
            case FaultKind.FAILOVER if isinstance(process, PostgresCluster):
                self.lagging_failovers += await process.fail_over(fault.seconds) > 0
            case _:
                process.kill()
                await process.wait()
                await asyncio.sleep(fault.seconds)
                await process.start()
        await process.wait_until_serving(self._ready_seconds)
