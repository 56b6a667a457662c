"""`examples/envoy-gateway.yaml` in a real Envoy: a call needs a token, whose subject is the request's `user_id`."""

import asyncio
import base64
import contextlib
import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from string import Template
from typing import Any

import grpc
import httpx2
import pytest
import pytest_asyncio
import yaml
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from shop.cart_pb2 import Cart, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.empty_pb2 import Empty
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_cli.local.ports import reserved
from shop_kit.running_shop import RunningShop, order_request
from shop_kit.waiting import wait_until

CHART = Path(__file__).resolve().parents[2] / "charts/shop"
SECURITY, PATCHES = yaml.safe_load_all((CHART / "examples/envoy-gateway.yaml").read_text())
SERVICES = yaml.safe_load((CHART / "values.yaml").read_text())["services"]
PROVIDER = SECURITY["spec"]["jwt"]["providers"][0]
FILTERS = [patch["operation"]["value"] for patch in PATCHES["spec"]["jsonPatches"]]
ROUTER_TYPE = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
ROUTER = {"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER_TYPE}}
ISSUERS_KEY, OTHER_KEY = generate_private_key(65537, 2048), generate_private_key(65537, 2048)
OWN, OTHERS = (GetCartRequest(user_id=name).SerializeToString() for name in ("alice", "bob"))
Call = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
PERMISSION_DENIED, UNAUTHENTICATED = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


def base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def token(alg: str = "RS256", key: RSAPrivateKey = ISSUERS_KEY, expires_in: int = 86_400, **claims: Any) -> str:
    """Return a token of the issuer in the example for `alice`; claims replace its own, and None removes one."""
    own = {
        "iss": PROVIDER["issuer"],
        "aud": PROVIDER["audiences"],
        "sub": "alice",
        "exp": int(time.time()) + expires_in,
    }
    payload = {name: value for name, value in {**own, **claims}.items() if value is not None}
    signed = ".".join(base64url(json.dumps(part).encode()) for part in ({"alg": alg, "kid": "1"}, payload))
    signature = b"" if alg == "none" else key.sign(signed.encode(), PKCS1v15(), SHA256())
    return f"{signed}.{base64url(signature)}"


def issuers_keys() -> str:
    """Return the issuer's key as the JSON that its address would serve."""
    key = ISSUERS_KEY.public_key().public_numbers()
    n, e = (base64url(number.to_bytes((number.bit_length() + 7) // 8)) for number in (key.n, key.e))
    return json.dumps({"keys": [{"kty": "RSA", "alg": "RS256", "kid": "1", "n": n, "e": e}]})


def bootstrap(port: int, shop: RunningShop) -> dict[str, Any]:
    """Return a configuration of Envoy that listens on this port, with the example's filters before the router."""
    listener, cluster = map(Template, (Path(__file__).parent / "envoy.yaml").read_text().split("\n---\n"))
    services = [process for process in shop.processes if process.program.protocol == "grpc"]
    routes = [
        {"match": {"prefix": f"/shop.{name.title().replace('-', '')}Service/"}, "route": {"cluster": name}}
        for name in (service.name for service in services)
    ]
    provider = {"ISSUER": PROVIDER["issuer"], "AUDIENCES": PROVIDER["audiences"], "PROVIDER": PROVIDER["name"]}
    found: dict[str, Any] = yaml.safe_load(
        listener.substitute(provider, PORT=port, ROUTES=json.dumps(routes), KEYS=issuers_keys())
    )
    [[manager]] = [chain["filters"] for chain in found["static_resources"]["listeners"][0]["filter_chains"]]
    manager["typed_config"]["http_filters"] += [*FILTERS, ROUTER]
    for service in services:
        assert service.certificates
        names = {"SERVICE": service.name, "PORT": service.port, "FOLDER": service.certificates.folder}
        found["static_resources"]["clusters"].append(yaml.safe_load(cluster.substitute(names)))
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def address(shop: RunningShop, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Envoy in front of the shop, which it reaches with the operator's certificate."""
    path, folder = Path(sys.executable).with_name("envoy"), tmp_path_factory.mktemp("envoy")
    if not path.exists():
        pytest.skip("Envoy is not installed")
    file, log = folder / "envoy.json", folder / "envoy.log"
    with reserved(1) as (port,), log.open("wb") as errors:
        file.write_text(json.dumps(bootstrap(port, shop)))
        envoy = await asyncio.create_subprocess_exec(
            *(path, "--config-path", file, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error"),
            stderr=errors,
        )
        try:
            await wait_until(lambda: envoy.returncode is not None or listens(port))
            if envoy.returncode is not None:
                # An invalid configuration is our defect; anything else, such as a missing right, is this machine's.
                give_up = pytest.fail if "onfig" in log.read_text() else pytest.skip
                give_up(f"Envoy does not run here: {log.read_text().partition(chr(10))[0]}")
            yield f"127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                envoy.terminate()
            await envoy.wait()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def gateway(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


def bearer(value: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {value}"),)


async def test_a_user_fills_a_cart_and_orders_it(shop: RunningShop, gateway: grpc.aio.Channel) -> None:
    await shop.fill_cart("alice")
    cart = await CartServiceStub(gateway).GetCart(GetCartRequest(user_id="alice"), metadata=bearer(token()))
    assert len(cart.items) == 3
    order = await CheckoutServiceStub(gateway).PlaceOrder(order_request("alice"), metadata=bearer(token()))
    assert order.order.order_id


async def test_methods_without_a_user_need_a_token_of_any_user(gateway: grpc.aio.Channel) -> None:
    catalog = ProductCatalogServiceStub(gateway)
    assert (await catalog.ListProducts(Empty(), metadata=bearer(token()))).products
    assert await catalog.ListProducts(Empty()).code() == UNAUTHENTICATED


@pytest.mark.parametrize("method", FILTERS[0]["typed_config"]["extractions_by_method"])
async def test_the_user_of_another_is_refused(gateway: grpc.aio.Channel, method: str) -> None:
    service, _, name = method.rpartition(".")
    call: Call = gateway.unary_unary(f"/{service}/{name}")
    assert await call(OTHERS, metadata=bearer(token())).code() == PERMISSION_DENIED


@pytest.mark.parametrize(
    ("credentials", "status"),
    [
        pytest.param(None, UNAUTHENTICATED, id="no token"),
        pytest.param("garbage", UNAUTHENTICATED, id="garbage"),
        pytest.param(token(expires_in=-600), UNAUTHENTICATED, id="expired"),
        pytest.param(token(alg="none"), UNAUTHENTICATED, id="unsigned"),
        pytest.param(token(alg="HS256"), UNAUTHENTICATED, id="algorithm"),
        pytest.param(token(key=OTHER_KEY), UNAUTHENTICATED, id="key"),
        pytest.param(token(iss="https://elsewhere.example.com"), UNAUTHENTICATED, id="issuer"),
        pytest.param(token(sub=["alice"]), UNAUTHENTICATED, id="list"),
        pytest.param(token(aud=["another"]), PERMISSION_DENIED, id="audience"),
        pytest.param(token(sub=None), PERMISSION_DENIED, id="no subject"),
        pytest.param(token(sub=""), PERMISSION_DENIED, id="empty"),
    ],
)
async def test_a_token_that_does_not_name_the_user_is_refused(
    gateway: grpc.aio.Channel, credentials: str | None, status: grpc.StatusCode
) -> None:
    metadata = bearer(credentials) if credentials else None
    call = CartServiceStub(gateway).GetCart(GetCartRequest(user_id="alice"), metadata=metadata)
    assert await call.code() == status


@pytest.mark.parametrize(
    "message",
    [b"", OTHERS, OWN + OTHERS, OWN + b"\x8a\x00\x03bob", OWN + b"\x0a\x83\x00bob", OTHERS + b"\x13" + OWN + b"\x14"],
    ids=["empty", "other", "last-wins", "long-tag", "long-length", "own-in-a-group"],
)
async def test_no_encoding_hides_the_user_that_the_service_reads(gateway: grpc.aio.Channel, message: bytes) -> None:
    assert GetCartRequest.FromString(message).user_id != "alice"
    call: Call = gateway.unary_unary("/shop.CartService/GetCart")
    assert await call(message, metadata=bearer(token())).code() == PERMISSION_DENIED


async def test_a_second_message_is_not_the_one_that_the_service_reads(gateway: grpc.aio.Channel) -> None:
    calls: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = gateway.stream_unary("/shop.CartService/GetCart")
    answer = await calls(iter([OWN, OTHERS]), metadata=bearer(token()))
    assert Cart.FromString(answer).user_id == "alice"
    # Envoy refuses it while the client still sends, which may also end the call as INTERNAL.
    assert await calls(iter([OTHERS, OWN]), metadata=bearer(token())).code() != grpc.StatusCode.OK


async def test_a_compressed_request_is_refused(gateway: grpc.aio.Channel) -> None:
    request = GetCartRequest(user_id="bob" * 40)
    call = CartServiceStub(gateway).GetCart(request, metadata=bearer(token()), compression=grpc.Compression.Gzip)
    assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.usefixtures("gateway")
async def test_a_browser_s_call_is_checked_too(address: str) -> None:
    headers = {"content-type": "application/grpc-web+proto", "authorization": f"Bearer {token()}"}
    async with httpx2.AsyncClient(base_url=f"http://{address}", headers=headers) as browser:
        for message, status in ((OTHERS, PERMISSION_DENIED), (OWN, None)):
            frame = b"\0" + len(message).to_bytes(4) + message
            answer = await browser.post("/shop.CartService/GetCart", content=frame)
            assert answer.headers.get("grpc-status") == (str(status.value[0]) if status else None)


@pytest.mark.parametrize("path", ["/shop.CartService/Unknown", "/shop.internal.Orders/ListOrders"])
async def test_a_method_that_the_example_does_not_name_is_refused(gateway: grpc.aio.Channel, path: str) -> None:
    call: Call = gateway.unary_unary(path)
    assert await call(OWN, metadata=bearer(token())).code() == PERMISSION_DENIED


def methods_with_a_user() -> set[str]:
    """Return the exposed methods whose request has a `user_id`."""
    found = set()
    for name in (name for name, values in SERVICES.items() if "protocol" not in values):
        (service,) = import_module(f"shop.{name.replace('-', '_')}_pb2").DESCRIPTOR.services_by_name.values()
        for method in (service.methods_by_name[exposed] for exposed in SERVICES[name].get("exposed", [])):
            if field := method.input_type.fields_by_name.get("user_id"):
                assert field.number == 1
                found.add(method.full_name)
    return found


def test_the_example_describes_every_exposed_method_whose_request_has_a_user() -> None:
    extraction = FILTERS[0]["typed_config"]
    (file,) = FileDescriptorSet.FromString(base64.b64decode(extraction["descriptor_set"]["inline_bytes"])).file
    described = {f"shop.{service.name}.{method.name}" for service in file.service for method in service.method}
    assert [(field.name, field.number, field.type) for field in file.message_type[0].field] == [("user_id", 1, 9)]
    assert extraction["extractions_by_method"].keys() == described == methods_with_a_user()
