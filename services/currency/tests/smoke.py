from shop.currency_pb2 import CurrencyConversionRequest
from shop.money_pb2 import Money
from shop_smoke import SmokeCall


def smoke_call(unique: str) -> SmokeCall:
    """Convert 12.50 EUR to USD."""
    request = CurrencyConversionRequest(to_code="USD")
    getattr(request, "from").CopyFrom(Money(currency_code="EUR", units=12, nanos=500_000_000))
    return SmokeCall("shop.CurrencyService/Convert", request)
