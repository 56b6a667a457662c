"""shop.CurrencyService: from the wire to the domain and back."""

from chassis.fields import require_present
from chassis.money import parse_money
from chassis.serving import ServicerContext
from chassis.wire import money_to_wire
from currency_service.domain import RatesSource
from shop import currency_pb2, currency_pb2_grpc, empty_pb2, money_pb2


class CurrencyService(currency_pb2_grpc.CurrencyServiceServicer):
    """Answers at the newest rates at the moment of the call."""

    def __init__(self, rates: RatesSource) -> None:
        self._rates = rates

    async def GetSupportedCurrencies(
        self, request: empty_pb2.Empty, context: ServicerContext
    ) -> currency_pb2.GetSupportedCurrenciesResponse:
        """ISO 4217 codes, in the order of the alphabet."""
        return currency_pb2.GetSupportedCurrenciesResponse(currency_codes=self._rates.value.codes)

    async def Convert(
        self, request: currency_pb2.CurrencyConversionRequest, context: ServicerContext
    ) -> money_pb2.Money:
        """The amount in another currency."""
        require_present(request.HasField("from"), "from")
        given: money_pb2.Money = getattr(request, "from")  # a keyword of Python
        amount = parse_money(given.currency_code, given.units, given.nanos, field="from")
        return money_to_wire(self._rates.value.convert(amount, request.to_code))
