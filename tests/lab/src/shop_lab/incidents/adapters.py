"""Faults of the catalogue as problems of SREGym and AIOpsLab, whose agents then investigate the shop on a cluster.

In a checkout of SREGym, with an `app` that has the release's namespace:

    class PaymentLock(ShopFault, Problem):
        fault_id = "pg-lock"

        def __init__(self):
            super().__init__(app=shop)

In one of AIOpsLab, beside its evaluation: `class PaymentLockLocalization(ShopFault, LocalizationTask)`. Both call
`inject_fault` before the agent begins and `recover_fault` after it; a fault ends by itself in any case.
"""

import subprocess
from collections.abc import Sequence
from typing import Any

from shop_lab.incidents import catalogue


class ShopFault:
    """A mixin before the benchmark's own base class.

    Attributes:
        fault_id: of the catalogue.
        release: of the chart, in the namespace of `app`.
        lasts: `--for` of the fault, at most an hour.
    """

    fault_id: str
    release = "shop"
    lasts = "1h"
    namespace: str

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app=app, **options)  # type: ignore[call-arg]
        self.namespace = app.namespace
        fault = catalogue.find(self.fault_id)
        self.faulty_service = fault.service
        place = f"component={fault.service}; namespace={self.namespace}"
        self.root_cause = f"[fault_spec] {place} || {fault.title}"  # as SREGym's judge reads it

    def start_workload(self) -> None:
        """The release has its own customers."""

    def inject_fault(self) -> None:
        """Start the fault. Raise CalledProcessError if the release is no laboratory or the fault cannot act."""
        self._shop("start", self.fault_id, "--for", self.lasts)

    def recover_fault(self) -> None:
        """Undo everything that is injected."""
        self._shop("stop")

    def _shop(self, *arguments: str) -> None:
        options: Sequence[str] = ("--namespace", self.namespace, "--release", self.release)
        subprocess.run(("shop", "faults", *arguments, *options), check=True)
