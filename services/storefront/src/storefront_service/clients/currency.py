from collections.abc import Sequence

from chassis.cache import TtlCache
from chassis.rpc.wire import money_from_wire, money_to_wire
from chassis.telemetry.instruments import Telemetry
from chassis.values.money import Money, round_to_minor_unit
from shop import currency_pb2, empty_pb2
from shop.currency_pb2_grpc import CurrencyServiceStub

_TTL_SECONDS = 60.0


class CurrencyClient:
    """Lists currencies and converts amounts. Serves stale values during a refresh, or if the refresh fails."""

    def __init__(self, stub: CurrencyServiceStub, telemetry: Telemetry) -> None:
        self._stub = stub
        self._codes = TtlCache(self._fetch_codes, _TTL_SECONDS, "currencies", telemetry, serve_stale=True)
        self._converted = TtlCache(self._convert, _TTL_SECONDS, "conversions", telemetry, serve_stale=True)

    async def codes(self) -> tuple[str, ...]:
        """Return all currency codes, sorted. Raise DomainError if they cannot be read and none are cached."""
        (codes,) = await self._codes.get("currencies")
        return codes

    async def convert(self, amounts: Sequence[Money], code: str) -> list[Money]:
        """Convert amounts to a currency, rounding as checkout does. Raise DomainError if a conversion fails."""
        foreign = [(amount, code) for amount in amounts if amount.currency_code != code]
        converted = dict(zip(foreign, await self._converted.get(*foreign), strict=True)) if foreign else {}
        return [converted.get((amount, code), amount) for amount in amounts]

    async def _fetch_codes(self, _key: str) -> tuple[str, ...]:
        return tuple((await self._stub.GetSupportedCurrencies(empty_pb2.Empty())).currency_codes)

    async def _convert(self, key: tuple[Money, str]) -> Money:
        amount, code = key
        request = currency_pb2.CurrencyConversionRequest(to_code=code)
        getattr(request, "from").CopyFrom(money_to_wire(amount))
        return round_to_minor_unit(money_from_wire(await self._stub.Convert(request)))
