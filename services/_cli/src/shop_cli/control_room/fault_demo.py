"""Places an order while payment is frozen and checkout is killed, to show that the customer is charged only once."""

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from chassis.errors import Aborted, DeadlineExceeded, DomainError, FailedPrecondition, Unavailable
from shop.checkout_pb2 import PlaceOrderRequest
from shop_cli.clients import checkout_client, fill_cart, journal_client, key_metadata
from shop_cli.output.printing import counted
from shop_cli.sample_order import sample_order
from shop_internal import orders_pb2

if TYPE_CHECKING:
    from shop_cli.control_room.room import ControlRoom

_KILL_SECONDS = 2.0
_FROZEN_SECONDS = 6.0
_RETRY_SECONDS = 1.0
_MAX_SECONDS = 60.0
_CALL_SECONDS = 5.0


class FaultDemo:
    """The page section that starts the demonstration and shows its steps.

    Attributes:
        steps: the events of the latest run, each with the number of seconds since the run started.
        order_id: the id of the latest run's order; "" until it is known.
    """

    page = "/"
    template = '{% include "_fault_demo.html" %}'

    def __init__(self, room: "ControlRoom") -> None:
        self._room = room
        self._started = 0.0
        self.running = False
        self.steps: list[tuple[float, str]] = []
        self.order_id = ""

    async def act(self, form: Mapping[str, str]) -> None:
        """Start the demonstration. Raise FailedPrecondition if an earlier run has not ended."""
        if self.running:
            raise FailedPrecondition("the demonstration has not ended yet", reason="FAULT_DEMO_RUNNING")
        self._started, self.running, self.steps, self.order_id = time.monotonic(), True, [], ""
        self._room.start(self._run())

    async def _run(self) -> None:
        try:
            await self._order_during_faults()
        except DomainError as error:
            self._add(f"{error.reason}: {error.message}")
        finally:
            self._room.act("resume", "payment")
            self.running = False

    async def _order_during_faults(self) -> None:
        user_id = f"demo-{secrets.token_hex(4)}"
        (product,) = await fill_cart(self._room.shop, user_id, lines=1)
        self._add(f"{product.name} is in the cart of {user_id}")
        self._room.act("freeze", "payment")
        self._add("payment is frozen (SIGSTOP)")
        faults = asyncio.create_task(self._inject_faults(), name="faults")
        try:
            await self._order(sample_order(user_id, f"{user_id}@example.com"), user_id)
        finally:
            faults.cancel()
            await asyncio.gather(faults, return_exceptions=True)
        await self._show_history()
        charges = await self._room.reconciler.charges_of(self.order_id)
        self._add(f"payment's ledger has {counted(charges, 'charge')} for this order")

    async def _order(self, request: PlaceOrderRequest, key: str) -> None:
        self._add("the customer places an order")
        async with checkout_client(self._room.shop["checkout"]) as checkout:
            while True:
                try:
                    placed = await checkout.PlaceOrder(request, timeout=_CALL_SECONDS, metadata=key_metadata(key))
                except (Aborted, DeadlineExceeded, Unavailable) as error:
                    if time.monotonic() - self._started > _MAX_SECONDS:
                        raise
                    self.order_id = error.metadata.get("order_id", self.order_id)
                    self._add(f"the customer gets {error.reason} and retries with the same key")
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    self.order_id = placed.order.order_id
                    self._add(f"the customer gets the order {self.order_id}")
                    return

    async def _inject_faults(self) -> None:
        await asyncio.sleep(_KILL_SECONDS)
        self._room.act("kill", "checkout")
        self._add("checkout is killed (SIGKILL); its supervisor starts it again, and recovery takes the order over")
        await asyncio.sleep(_FROZEN_SECONDS - _KILL_SECONDS)
        self._room.act("resume", "payment")
        self._add("payment continues (SIGCONT)")

    async def _show_history(self) -> None:
        async with journal_client(self._room.shop["checkout"]) as journal:
            found = await journal.GetOrder(orders_pb2.GetOrderRequest(order_id=self.order_id))
        steps = ", ".join(event.step for event in found.history)
        self._add(f"checkout's journal: {steps}; {counted(found.order.epoch, 'owner')}")

    def _add(self, text: str) -> None:
        if self.steps and self.steps[-1][1] == text:
            return
        self.steps.append((time.monotonic() - self._started, text))
