"""What checkout depends on is down, restarted, or out of space."""

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from email import message_from_bytes, policy
from pathlib import Path

import pytest
from aiosmtpd.controller import UnthreadedController
from aiosmtpd.smtp import SMTP, Envelope, Session

from chassis.errors import DomainError
from shop.cart_pb2 import AddItemRequest, CartItem, GetCartRequest
from shop_cli.local.ports import reserved
from shop_cli.prove.buying import Bought
from shop_cli.prove.evidence import Told
from shop_cli.prove.gathering import wait_for_quiet
from shop_cli.prove.ledgers import to_mail
from shop_internal.orders_pb2 import ListOrdersRequest
from shop_testkit.scenario import Scene, answers, scene, until

ANSWER_SECONDS = 5.0
ADDITIONS = 1_000
FREE_BYTES = 20_000


@pytest.fixture
def shop(sqlite_scene: Scene) -> Scene:
    return sqlite_scene


@asynccontextmanager
async def down(shop: Scene, name: str, how: str) -> AsyncIterator[None]:
    """A service that was killed, or one that listens and says nothing."""
    process = shop.stage.shop[name]
    if how == "frozen":
        process.pause()
    else:
        process.kill()
        await process.wait()
    try:
        yield
    finally:
        if how == "frozen":
            process.resume()
        else:
            await process.start()
        await process.wait_until_serving()


@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("peer", ["product-catalog", "currency", "shipping"])
async def test_an_order_that_cannot_be_priced_is_refused_soon_and_never_charged(
    shop: Scene, peer: str, how: str
) -> None:
    await shop.arrange()
    await shop.reboot("checkout-1")  # it remembers neither prices nor conversions
    wish = shop.wish(max_tries=1)
    async with down(shop, peer, how):
        started = time.monotonic()
        (answer,) = answers(await shop.play(wish))
        assert time.monotonic() - started < ANSWER_SECONDS
        assert answer.reason in {"DEPENDENCY_UNAVAILABLE", "QUOTES_TOO_SLOW"}
        assert shop.charges(wish) == []
        assert not any(order.user_id == wish.user_id for order in await orders(shop))


async def orders(shop: Scene) -> list[object]:
    return list((await shop.peers.journal.ListOrders(ListOrdersRequest(limit=1_000))).orders)


async def test_an_order_can_be_placed_once_its_dependency_is_back(shop: Scene) -> None:
    await shop.arrange()
    await shop.reboot("checkout-1")
    wish = shop.wish()
    async with down(shop, "currency", "killed"):
        ordering = asyncio.create_task(shop.play(wish))
        await asyncio.sleep(1)
    played = await ordering
    assert [answer.told for answer in answers(played)] == [Told.PLACED]
    assert await shop.violations(played) == []


async def test_an_order_needs_neither_recommendations_nor_ads(shop: Scene) -> None:
    await shop.arrange()
    assert {"recommendation", "ad"}.isdisjoint(process.name for process in shop.stage.shop)
    assert [answer.told for answer in answers(await shop.play(shop.wish()))] == [Told.PLACED]


class Inbox:
    """An SMTP relay's messages."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.contents.append(bytes(envelope.content or b""))
        return "250 OK"

    def order_ids(self) -> set[str]:
        return {to_mail(message_from_bytes(each, policy=policy.default)).order_id for each in self.contents}


async def test_orders_are_placed_without_the_mail_relay_and_mailed_once_it_is_back(shop: Scene) -> None:
    with reserved(1) as (port,):
        await shop.arrange({"email": {"SMTP_URL": f"smtp://127.0.0.1:{port}"}})
        played = await shop.play(*(shop.wish() for _ in range(5)))
        assert [answer.told for answer in answers(played)] == [Told.PLACED] * 5
        inbox = Inbox()
        relay = UnthreadedController(inbox, hostname="127.0.0.1", port=port, loop=asyncio.get_running_loop())
        server = await asyncio.get_running_loop().create_server(relay.factory, "127.0.0.1", port)
        try:
            assert await wait_for_quiet(shop.peers.journal) is not None
        finally:
            server.close()
        assert inbox.order_ids() == {answer.order.order_id for answer in answers(played) if answer.order}
    await shop.arrange()


async def test_a_cart_without_its_store_says_so_soon_and_serves_soon_after_it_is_back(shop: Scene) -> None:
    await shop.arrange()
    valkey = shop.stage.valkey
    valkey.kill()
    await valkey.wait()
    started = time.monotonic()
    with pytest.raises(DomainError) as refused:
        await shop.peers.cart.GetCart(GetCartRequest(user_id="u"))
    assert time.monotonic() - started < ANSWER_SECONDS
    assert refused.value.reason in {"STORE_UNAVAILABLE", "UNAVAILABLE"}
    await valkey.start()
    await valkey.wait_until_serving()
    started = time.monotonic()
    await until(lambda: has_a_cart(shop))
    assert time.monotonic() - started < 2 * ANSWER_SECONDS


async def has_a_cart(shop: Scene) -> bool:
    return await shop.buyer.left_in_cart("u") is not None


async def test_a_thousand_additions_to_one_cart_are_a_thousand_though_its_store_is_killed(shop: Scene) -> None:
    await shop.arrange()
    user_id = shop.wish().user_id
    request = AddItemRequest(user_id=user_id, item=CartItem(product_id="p", quantity=1))
    added = asyncio.Semaphore(0)
    async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
        for number in range(ADDITIONS):
            tasks.create_task(add(shop, request, f"thousand-{number}", added))
        for _ in range(ADDITIONS // 10):
            await added.acquire()
        shop.stage.valkey.kill()
        await shop.stage.valkey.wait()
        await shop.stage.valkey.start()
    assert await shop.buyer.left_in_cart(user_id) == {"p": ADDITIONS}


async def add(shop: Scene, request: AddItemRequest, key: str, added: asyncio.Semaphore) -> None:
    """Add until the cart says that it did."""
    while True:
        try:
            await shop.peers.cart.AddItem(request, metadata=(("idempotency-key", key),))
        except DomainError:
            await asyncio.sleep(0.1)
        else:
            added.release()
            return


async def test_orders_outlive_a_restart_of_postgres(postgres_scene: Scene) -> None:
    await postgres_scene.arrange()
    wishes = [postgres_scene.wish(keyed=bool(count % 2), at=count % 2) for count in range(20)]
    ordering = asyncio.create_task(postgres_scene.play(*wishes))
    server = postgres_scene.stage.postgres
    assert server is not None
    server.kill()
    await server.wait()
    await asyncio.sleep(1)
    await server.start()
    played = await ordering
    assert [answer.told for answer in answers(played)] == [Told.PLACED] * 20
    assert await postgres_scene.violations(played) == []


async def test_without_postgres_an_order_is_refused_and_never_charged(postgres_scene: Scene) -> None:
    await postgres_scene.arrange()
    server = postgres_scene.stage.postgres
    assert server is not None
    wish = postgres_scene.wish(max_tries=1)
    server.kill()
    await server.wait()
    try:
        (answer,) = answers(await postgres_scene.play(wish))
    finally:
        await server.start()
        await server.wait_until_serving()
    assert answer.told is Told.NOTHING
    assert postgres_scene.charges(wish) == []


async def test_more_orders_at_once_than_connections_are_all_placed(postgres_scene: Scene) -> None:
    await postgres_scene.arrange()
    played = await postgres_scene.play(*(postgres_scene.wish(at=count % 2) for count in range(100)))
    assert [answer.told for answer in answers(played)] == [Told.PLACED] * 100
    assert await postgres_scene.violations(played) == []


@contextmanager
def full_disk(pid: int | None, file: Path) -> Iterator[None]:
    """No file of the process grows much beyond this one's size: writes fail half-way, as on a full disk."""
    assert pid is not None
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    size = file.stat().st_size if file.exists() else 0
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + FREE_BYTES, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("name", "file"),
    [("checkout-1", "checkout.db-wal"), ("payment", "payment.db-wal"), ("shipping", "shipments.jsonl")],
)
async def test_a_full_disk_refuses_orders_and_corrupts_nothing(tmp_path: Path, name: str, file: str) -> None:
    async with scene(tmp_path, "sqlite", checkouts=1) as shop:
        played: list[Bought] = []
        with full_disk(shop.stage.shop[name].pid, tmp_path / ".shop" / file):
            async with asyncio.timeout(90):
                while not any(answer.told is Told.NOTHING for answer in answers(played)):
                    played += await shop.play(*(shop.wish(max_tries=1) for _ in range(20)))
        again = await shop.play(shop.wish())
        assert await shop.violations([*played, *again]) == []
        assert [answer.told for answer in answers(again)] == [Told.PLACED]
