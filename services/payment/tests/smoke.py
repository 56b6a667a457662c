from shop.money_pb2 import Money
from shop.payment_pb2 import ChargeRequest, CreditCardInfo
from shop_smoke import SmokeCall


def smoke_call(unique: str) -> SmokeCall:
    """Charge 12.50 EUR to the documented test card."""
    card = CreditCardInfo(
        credit_card_number="4242424242424242",
        credit_card_cvv=123,
        credit_card_expiration_year=2099,
        credit_card_expiration_month=12,
    )
    amount = Money(currency_code="EUR", units=12, nanos=500_000_000)
    return SmokeCall("shop.PaymentService/Charge", ChargeRequest(amount=amount, credit_card=card))
