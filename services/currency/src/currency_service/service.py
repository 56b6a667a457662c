"""Implements shop.CurrencyService: translates between gRPC messages and the domain."""

from collections.abc import Callable

from chassis.rpc.calls import ServicerContext
from chassis.rpc.wire import money_to_wire, parse_wire_money
from chassis.values.fields import require_present
from currency_service.domain import Rates
from shop import currency_pb2, currency_pb2_grpc, empty_pb2, money_pb2


class CurrencyService(currency_pb2_grpc.CurrencyServiceServicer):
    """Converts amounts at the latest rates."""

    def __init__(self, current: Callable[[], Rates]) -> None:
        self._current = current

    async def GetSupportedCurrencies(
        self, request: empty_pb2.Empty, context: ServicerContext
    ) -> currency_pb2.GetSupportedCurrenciesResponse:
        return currency_pb2.GetSupportedCurrenciesResponse(currency_codes=self._current().codes)

    async def Convert(
        self, request: currency_pb2.CurrencyConversionRequest, context: ServicerContext
    ) -> money_pb2.Money:
        require_present(request.HasField("from"), "from")
        amount = parse_wire_money(getattr(request, "from"), field="from")  # `request.from` would be a syntax error
        return money_to_wire(self._current().convert(amount, request.to_code))
