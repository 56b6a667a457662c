"""A stage for single orders: what tests of single faults share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from chassis.errors import DomainError, InvalidArgument
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.empty_pb2 import Empty
from shop_cli.local.processes import Process
from shop_cli.prove.buying import Bought, Buyer
from shop_cli.prove.connections import Connections, connected
from shop_cli.prove.evidence import Answer, Evidence
from shop_cli.prove.gathering import gather, wait_for_quiet
from shop_cli.prove.invariants import Finding, judge
from shop_cli.prove.ledgers import Charge, card_hmac, read_charges
from shop_cli.prove.pace import Pace
from shop_cli.prove.plan import Customer, Intent, Line, plain
from shop_cli.prove.stage import START_SECONDS, Database, Stage, staged

_MANY = 1_000_000
_POLL_SECONDS = 0.02


@dataclass
class Scene:
    """A running shop, and customers for it.

    Attributes:
        products: ids that the catalog has.
    """

    stage: Stage
    peers: Connections
    buyer: Buyer
    products: list[str]
    _numbers: int = 0
    _variables: dict[str, dict[str, str]] = field(default_factory=dict)

    async def arrange(self, variables: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Have every process run with these variables beside its usual ones, and nothing else; restart who does not.

        A process that died on its own counts as one that runs with others.
        """
        wanted = {name: dict(each) for name, each in (variables or {}).items()}
        changed = [
            process
            for process in self.stage.shop
            if not process.running or wanted.get(process.name, {}) != self._variables.get(process.name, {})
        ]
        for process in changed:
            await self.reboot(process.name, **wanted.get(process.name, {}))

    async def reboot(self, name: str, **variables: str) -> None:
        """Kill a process and start it again with more variables."""
        process = self.stage.shop[name]
        process.kill()
        await process.wait()
        self._variables[name] = variables
        await process.start(**variables)
        await process.wait_until_serving(START_SECONDS)
        if name in self.stage.checkouts:
            await self._until_connected(self.peers.checkouts[self.stage.checkouts.index(name)])

    async def _until_connected(self, checkout: CheckoutServiceStub) -> None:
        """Wait until a connection that was lost is made anew: meanwhile every call fails, and faults are not met."""
        async with asyncio.timeout(START_SECONDS):
            while True:
                try:
                    await checkout.PlaceOrder(PlaceOrderRequest())
                except InvalidArgument:
                    return
                except DomainError:
                    await asyncio.sleep(_POLL_SECONDS)

    @asynccontextmanager
    async def revived(self, name: str) -> AsyncIterator[Process]:
        """A process that is started again, as usual, should it die within the context."""
        process = self.stage.shop[name]
        reviving = asyncio.create_task(self._revive(process), name=f"revive {name}")
        try:
            yield process
        finally:
            reviving.cancel()
            await asyncio.gather(reviving, return_exceptions=True)

    async def _revive(self, process: Process) -> None:
        while True:
            await process.wait()
            self._variables[process.name] = {}
            await process.start()

    def wish(self, *, keyed: bool = True, max_tries: int | None = None, at: int = 0) -> Intent:
        """A new order that nothing is wrong with, first asked for at the checkout of index `at`."""
        self._numbers += len(self.peers.checkouts)  # the buyer takes turns by this number
        number = self._numbers + at
        lines = [Line(product_id, 1 + index) for index, product_id in enumerate(self.products[:3])]
        wish = plain(number, f"customer-{number}", lines, f"key-{number}" if keyed else None)
        return replace(wish, max_tries=max_tries)

    async def play(self, *intents: Intent) -> list[Bought]:
        """Let as many customers want these orders, at once."""
        return await asyncio.gather(*(self.buyer.play(Customer(each.user_id, (each,))) for each in intents))

    def charges(self, intent: Intent) -> list[Charge]:
        """What payment's ledger says of an order's card."""
        card = card_hmac(intent, self.stage.hmac_key)
        return [charge for charge in read_charges(self.stage.payment_url) if charge.card_hmac == card]

    def captured(self, intent: Intent) -> int:
        """How often an order's card was charged for good."""
        return sum(charge.state == "CHARGED" for charge in self.charges(intent))

    async def evidence(self, bought: list[Bought]) -> Evidence:
        """What is known of these orders once nothing is left to do. Other orders' entries are no strangers here."""
        quiet_seconds = await wait_for_quiet(self.peers.journal)
        return replace(await gather(self.stage, self.buyer, self.peers.journal, bought, quiet_seconds), strangers=())

    async def violations(self, bought: list[Bought]) -> list[Finding]:
        """The invariants that do not hold for these orders."""
        return [finding for finding in judge(await self.evidence(bought)) if not finding.holds]


@asynccontextmanager
async def scene(
    folder: Path, database: Database, *, checkouts: int = 2, lease_seconds: float = 1.0, timeout_seconds: float = 1.5
) -> AsyncIterator[Scene]:
    """A scene in an empty folder."""
    async with (
        staged(folder, database, checkouts=checkouts, lease_seconds=lease_seconds) as stage,
        connected(stage) as peers,
    ):
        pace = Pace(lambda _: None)
        await pace.allow(_MANY)
        buyer = Buyer(peers.cart, peers.checkouts, pace, timeout_seconds=timeout_seconds, hasty_share=0)
        products = sorted(product.id for product in (await peers.catalog.ListProducts(Empty())).products)
        yield Scene(stage, peers, buyer, products)


def answers(played: list[Bought]) -> list[Answer]:
    """What the customers experienced, in the order of their orders."""
    return [answer for bought in played for answer in bought.answers.values()]


def faulty(point: str, action: str, times: int = 1) -> dict[str, str]:
    """The variable that makes a process kill itself, hang or fail the first `times` it comes by a failpoint."""
    return {"FAILPOINTS": f"{point}={action}*{times}"}


def owner(point: str) -> str:
    """The process that has a failpoint, by the point's name; of several checkouts the first."""
    name = point.partition(".")[0]
    return "checkout-1" if name == "checkout" else name


async def until(holds: Callable[[], Awaitable[bool]], timeout_seconds: float = 60.0) -> None:
    """Wait for a condition; raises TimeoutError."""
    async with asyncio.timeout(timeout_seconds):
        while not await holds():  # noqa: ASYNC110 - it is others that change it
            await asyncio.sleep(_POLL_SECONDS)
