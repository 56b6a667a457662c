import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from structlog.testing import capture_logs

from chassis.errors import Unavailable
from chassis.rpc import client, connection, server
from chassis.settings import ServiceSettings, load
from chassis.telemetry import semconv
from chassis.tls import certificates
from chassis.tls.certificates import Certificates
from shop import cart_pb2
from shop.cart_pb2_grpc import CartServiceStub
from shop_cli.local.authority import Authority, Issued
from shop_internal import ordered_cart_pb2
from shop_internal.ordered_cart_pb2_grpc import OrderedCartStub
from shop_kit.carts import Carts, HeldCarts
from shop_kit.certificates import HOUR, issue, issue_bad, new_authority, renew, spiffe_id
from shop_kit.failing import outcome
from shop_kit.fake_peers.reads import FakeOrderedCart
from shop_kit.metrics import measured
from shop_kit.serving import health, running
from shop_kit.waiting import wait_until

AUTHORITY, FOREIGN = new_authority(), new_authority("foreign")
GET = cart_pb2.GetCartRequest(user_id="u")
ORDERED_CART, REMOVAL = (OrderedCartStub, "shop.internal.OrderedCart"), ordered_cart_pb2.RemoveOrderedRequest()
GET_CART, REMOVE = "shop.CartService/GetCart", "shop.internal.OrderedCart/RemoveOrdered"
REFLECTION = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
DNS_NAME = "shop-checkout.shop.svc.cluster.local"


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """The certificate folders of a server, an allowed caller and another caller."""
    return {name: renew(tmp_path / name, AUTHORITY, name) for name in ("cart", "checkout", "ad")}


@pytest.fixture(autouse=True)
def look_at_each_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_CHECK_SECONDS", 0)
    monkeypatch.setattr(connection, "_FOLLOW_SECONDS", 0.01)


def serving(folder: Path, carts: Carts | None = None, **options: Any) -> AbstractAsyncContextManager[server.Service]:
    """Serve carts to checkout. The table of allowed calls also has a method that only another release serves."""
    listed = [GET_CART, REMOVE, "shop.CartService/GetCarts"]
    allowed = json.dumps({spiffe_id("checkout"): listed, DNS_NAME: [GET_CART]})
    options = {"tls_folder": folder, "allowed_calls": allowed, **options}
    return running(carts or Carts(), internal=[FakeOrderedCart()], **options)


@asynccontextmanager
async def calling(
    port: int | None, folder: Path | None, stub: Any = CartServiceStub, service: str = "shop.CartService"
) -> AsyncIterator[Any]:
    loaded = Certificates.load(str(folder)) if folder else None
    channel = client.channel(f"127.0.0.1:{port}", service, timeout_seconds=60, certificates=loaded)
    try:
        yield stub(channel)
    finally:
        await channel.close()


@asynccontextmanager
async def presenting(port: int, issued: Issued | None, authorities: bytes) -> AsyncIterator[grpc.aio.Channel]:
    """Open a channel with a certificate that `Certificates` would refuse to load."""
    pair = (issued.key, issued.certificate) if issued else (None, None)
    credentials = grpc.ssl_channel_credentials(authorities, *pair)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        yield channel


async def refusal(call: Any) -> Unavailable:
    with pytest.raises(Unavailable) as raised:
        await call
    return raised.value


async def test_a_caller_may_make_the_calls_that_the_table_lists_and_no_others(folders: dict[str, Path]) -> None:
    telemetry, read = measured()
    with capture_logs() as logs:
        async with serving(folders["cart"], telemetry=telemetry) as service:
            async with calling(service.port, folders["checkout"]) as listed:
                assert (await listed.GetCart(GET)).user_id == "u"
                refused = await refusal(listed.AddItem(cart_pb2.AddItemRequest(user_id="secret")))
                assert refused.reason == "CALLER_NOT_ALLOWED"
                assert "shop.CartService/AddItem: ALLOWED_CALLS does not list it" in refused.message
            async with calling(service.internal_port, folders["checkout"], *ORDERED_CART) as listed:
                await listed.RemoveOrdered(REMOVAL)
            async with calling(service.internal_port, folders["ad"], *ORDERED_CART) as unlisted:
                assert (await refusal(unlisted.RemoveOrdered(REMOVAL))).reason == "CALLER_NOT_ALLOWED"
            async with calling(service.port, folders["ad"]) as unlisted:
                for _ in range(3):
                    assert (await refusal(unlisted.GetCart(GET))).reason == "CALLER_NOT_ALLOWED"
    lines = [(entry["caller"], entry["method"]) for entry in logs if entry["event"] == "caller not allowed"]
    expected = [("checkout", "shop.CartService/AddItem"), ("ad", REMOVE), ("ad", GET_CART)]
    assert lines == [(spiffe_id(caller), method) for caller, method in expected]
    assert "secret" not in repr(logs)
    metric = semconv.DENIED_REQUESTS.name
    denied = {series[1][1]: value for series, value in read().items() if series[0] == metric}
    counted = {method: count for method, count in denied.items() if count}
    assert counted == {GET_CART: 3, "shop.CartService/AddItem": 1, REMOVE: 1}
    assert denied["shop.CartService/EmptyCart"] == 0  # an alert only sees increases, so the series must start at 0


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("{", "Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
        ('{"spiffe://shop/sa/cart": "GetCart"}', "Expected `array`, got `str`"),
        ('{"cart": ["shop.CartService/GetCart"]}', "matching regex '^(spiffe://"),
        ('{"spiffe://shop/sa/cart": ["GetCart"]}', "matching regex"),
        ('{"spiffe://shop/sa/cart": ["/shop.CartService/GetCart"]}', "at `$[...][0]`"),
    ],
)
def test_a_table_that_does_not_parse_ends_the_start_with_one_line_that_names_it(
    table: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        load(ServiceSettings, {"ALLOWED_CALLS": table})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ALLOWED_CALLS: must be a JSON object such as {")
    assert problem in line


@pytest.mark.parametrize(("caller", "options"), [("ad", {}), ("checkout", {"allowed_calls": None})])
async def test_a_caller_that_the_table_does_not_list_is_refused_before_its_request_is_read(
    caller: str, options: dict[str, Any], folders: dict[str, Path]
) -> None:
    async with (
        serving(folders["cart"], **options) as service,
        presenting(service.port, issue(AUTHORITY, caller), AUTHORITY.certificate) as channel,
    ):
        call: Any = channel.stream_unary(f"/{GET_CART}")()
        assert await call.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_certificate_without_a_uri_names_a_caller_by_its_dns_names(folders: dict[str, Path]) -> None:
    issued = issue_bad(AUTHORITY, hosts=[x509.DNSName("shop-checkout"), x509.DNSName(DNS_NAME)])
    with capture_logs() as logs:
        async with (
            serving(folders["cart"]) as service,
            presenting(service.port, issued, AUTHORITY.certificate) as channel,
        ):
            assert (await CartServiceStub(channel).GetCart(GET)).user_id == "u"
            refused = CartServiceStub(channel).AddItem(cart_pb2.AddItemRequest(user_id="u"))
            assert await outcome(refused) == "PERMISSION_DENIED"
    assert [entry["caller"] for entry in logs if "caller" in entry] == [f"shop-checkout, {DNS_NAME}"]


@pytest.mark.parametrize(
    ("services", "dns_name"),
    [((), "shop-ad.shop.svc.cluster.local"), (("checkout", "ad"), DNS_NAME), (("checkout", "checkout"), DNS_NAME)],
)
async def test_a_certificate_without_a_listed_name_or_with_several_uris_is_for_health_and_reflection_alone(
    services: Sequence[str], dns_name: str, folders: dict[str, Path]
) -> None:
    async with serving(folders["cart"]) as service:
        issued = issue_bad(AUTHORITY, *services, hosts=[x509.DNSName(dns_name)])
        async with presenting(service.port, issued, AUTHORITY.certificate) as channel:
            assert await health(channel, "shop.CartService") == "SERVING"
            reflect = channel.stream_stream(f"/{REFLECTION}", bytes, bytes)
            answers = [answer async for answer in reflect(iter([b"\x3a\x00"]))]  # list_services
            assert b"shop.CartService" in answers[0]
            assert await outcome(CartServiceStub(channel).GetCart(GET)) == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    "issued",
    [issue_bad(AUTHORITY, "checkout", valid_from=-2 * HOUR, valid_until=-HOUR), issue(FOREIGN, "checkout"), None],
    ids=["expired", "foreign", "none"],
)
async def test_a_client_whose_certificate_is_not_valid_gets_no_connection(
    issued: Issued | None, folders: dict[str, Path]
) -> None:
    async with serving(folders["cart"]) as service, presenting(service.port, issued, AUTHORITY.certificate) as channel:
        assert await outcome(CartServiceStub(channel).GetCart(GET)) == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("issued", "reason"),
    [
        (issue_bad(AUTHORITY, "cart", valid_from=-2 * HOUR, valid_until=-HOUR), "certificate has expired"),
        (issue(FOREIGN, "cart"), "unable to get local issuer certificate"),
        (issue_bad(AUTHORITY, "cart", hosts=[x509.DNSName("shop-ad")]), "Hostname Verification Check failed"),
        (issue_bad(AUTHORITY, "cart", hosts=[]), "Hostname Verification Check failed"),
    ],
    ids=["expired", "foreign", "another host", "a URI alone"],
)
async def test_a_server_whose_certificate_is_not_valid_gets_no_call(
    issued: Issued, reason: str, folders: dict[str, Path]
) -> None:
    peer = grpc.aio.server()
    pairs = [(issued.key, issued.certificate)]
    port = peer.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(pairs, AUTHORITY.certificate, True))
    await peer.start()
    async with calling(port, folders["checkout"]) as stub:
        refused = await refusal(stub.GetCart(GET))
    await peer.stop(None)
    assert reason in refused.message


async def test_an_error_says_that_one_side_alone_has_tls(folders: dict[str, Path]) -> None:
    async with serving(folders["cart"], health_port=0) as service:
        async with calling(service.port, None) as plain:
            assert "does the peer require TLS" in (await refusal(plain.GetCart(GET))).message
        async with calling(service.health_port, folders["checkout"]) as secure:
            assert "does the peer serve plaintext?" in (await refusal(secure.GetCart(GET))).message


async def test_health_alone_is_served_in_plaintext_until_the_drain_ends(folders: dict[str, Path]) -> None:
    carts = HeldCarts()
    async with (
        serving(folders["cart"], carts, grace_seconds=20, health_port=0) as service,
        calling(service.port, folders["checkout"]) as stub,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.health_port}") as plain,
    ):
        names = ("", "liveness", "shop.CartService")
        assert [await health(plain, name) for name in names] == ["SERVING"] * 3
        for method in (REFLECTION, GET_CART):
            assert await outcome(plain.unary_unary(f"/{method}", bytes)(b"")) == "UNIMPLEMENTED"
        call = asyncio.ensure_future(stub.GetCart(GET))
        await wait_until(lambda: carts.entered)
        draining = asyncio.create_task(service.drain())
        await asyncio.sleep(0)
        assert [await health(plain, name) for name in names] == ["NOT_SERVING", "SERVING", "NOT_SERVING"]
        carts.released.set()
        await call
        await draining


async def test_the_old_channel_is_used_until_a_peer_accepts_the_new_certificate_and_by_calls_in_flight(
    folders: dict[str, Path],
) -> None:
    carts = HeldCarts()
    carts.released.set()
    async with serving(folders["cart"], carts) as service, calling(service.port, folders["checkout"]) as stub:
        await stub.GetCart(GET)
        used, loaded = stub.GetCart.raw, Certificates.load(str(folders["checkout"]))
        before = loaded.current
        renew(folders["checkout"], FOREIGN, "checkout", AUTHORITY)
        await wait_until(lambda: loaded.current is not before)
        for _ in range(20):
            await asyncio.sleep(0.01)
            await stub.GetCart(GET)
        assert stub.GetCart.raw is used
        carts.released.clear()
        in_flight = asyncio.ensure_future(stub.GetCart(GET))
        await wait_until(lambda: carts.entered == 22)
        renew(folders["cart"], AUTHORITY, "cart", FOREIGN)
        await wait_until(lambda: stub.GetCart.raw is not used)
        later = asyncio.ensure_future(stub.GetCart(GET))
        await wait_until(lambda: carts.entered == 23)
        carts.released.set()
        assert [cart.user_id for cart in await asyncio.gather(in_flight, later)] == ["held", "held"]


async def test_calls_do_not_fail_while_certificates_and_their_authority_are_replaced(folders: dict[str, Path]) -> None:
    loaded = [Certificates.load(str(folders[name])) for name in ("cart", "checkout")]
    done, calls = False, 0

    async def call_until_done() -> None:
        nonlocal calls
        while not done:
            await stub.GetCart(GET)
            calls += 1

    async def renew_both(issuer: Authority, *trusted: Authority) -> None:
        renew(folders["cart"], issuer, "cart", *trusted)
        # The client's new certificate could not connect to a server that still used its old certificate.
        renew(folders["checkout"], issuer, "checkout", *trusted)
        used, before = stub.GetCart.raw, calls
        await wait_until(lambda: stub.GetCart.raw is not used and calls > before)

    async with (
        serving(folders["cart"]) as service,
        calling(service.port, folders["checkout"]) as stub,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(8):
            tasks.create_task(call_until_done())
        old = AUTHORITY
        for number in range(3):
            new = new_authority(f"number {number}")
            await renew_both(old, new)
            await renew_both(new, old)
            await renew_both(new)
            old = new
        done = True
    assert [found.failed_reloads for found in loaded] == [0, 0]
