"""`python -m cart_service` serves carts: from Valkey when REDIS_URL is set, else from memory."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from cart_service.domain import CartStore
from cart_service.service import CartService
from cart_service.store import MemoryCartStore
from chassis.server import Service, run
from chassis.settings import ServiceSettings
from shop import cart_pb2_grpc


def _checked_url(url: SecretStr) -> SecretStr:
    if not url.get_secret_value().startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("must begin with redis://, rediss:// or unix://")
    return url


class Settings(ServiceSettings):
    """What the cart service can be told."""

    redis_url: Annotated[SecretStr, AfterValidator(_checked_url)] | None = None
    cart_ttl_seconds: float = Field(default=30 * 24 * 3600, ge=1)


def store(settings: Settings) -> AbstractAsyncContextManager[CartStore]:
    """The store that the settings name."""
    if settings.redis_url is None:
        return nullcontext(MemoryCartStore(settings.cart_ttl_seconds))
    from cart_service.valkey import connected  # noqa: PLC0415 - the client takes 0.3 s and 10 MB that memory does not need

    return connected(settings.redis_url.get_secret_value(), settings.cart_ttl_seconds)


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    """Serve the store's carts while it answers."""
    async with store(settings) as carts:
        service.add_readiness_check(carts.check)
        service.add_servicer(cart_pb2_grpc.add_CartServiceServicer_to_server, CartService(carts))
        yield


if __name__ == "__main__":
    run("cart", Settings, build)
