"""`python -m cart_service` runs the cart service; `python -m cart_service migrate` only migrates its database."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Annotated

from msgspec import Meta

from cart_service.domain import CartStore
from cart_service.service import CartService
from cart_service.sql import MIGRATIONS, open_sql_store
from cart_service.store import MemoryCartStore
from chassis.rpc.server import Service, run
from chassis.settings import SecretStr, ServiceSettings, secret_url
from chassis.sql.settings import DatabaseUrl
from chassis.telemetry.instruments import Telemetry
from shop import cart_pb2_grpc
from shop_internal import cart_lines_pb2_grpc, ordered_cart_pb2_grpc


class Settings(ServiceSettings):
    database_url: DatabaseUrl = SecretStr("")
    redis_url: Annotated[SecretStr, secret_url("redis", "rediss", "unix")] | None = None
    cart_ttl_seconds: Annotated[float, Meta(ge=1)] = 30 * 24 * 3600


def open_store(settings: Settings, telemetry: Telemetry) -> AbstractAsyncContextManager[CartStore]:
    """Open a cart store at DATABASE_URL or REDIS_URL, or in memory by default. Raise OSError if both are set."""
    if database_url := settings.database_url.get_secret_value():
        if settings.redis_url is not None:
            raise OSError("REDIS_URL: DATABASE_URL is set, too; set only one of them")
        return open_sql_store(database_url, settings.cart_ttl_seconds, telemetry)
    if settings.redis_url is None:
        return nullcontext(MemoryCartStore(settings.cart_ttl_seconds))
    from cart_service.valkey import open_valkey_store  # noqa: PLC0415 - importing redis-py takes 20 MB of memory

    url = settings.redis_url.get_secret_value()
    return open_valkey_store(url, settings.cart_ttl_seconds, telemetry=telemetry)


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    async with open_store(settings, service.telemetry) as carts:
        service.readiness_checks.append(carts.check)
        cart = CartService(carts, service.telemetry)
        service.add_servicer(cart_pb2_grpc.add_CartServiceServicer_to_server, cart)
        service.add_internal_servicer(ordered_cart_pb2_grpc.add_OrderedCartServicer_to_server, cart)
        service.add_internal_servicer(cart_lines_pb2_grpc.add_CartLinesServicer_to_server, cart)
        yield


if __name__ == "__main__":
    run("cart", Settings, build, migrations=MIGRATIONS)
