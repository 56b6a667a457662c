from shop.address_pb2 import Address
from shop.cart_pb2 import CartItem
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.money_pb2 import Money
from shop.order_pb2 import OrderItem, OrderResult
from shop_smoke import SmokeCall


def smoke_call(unique: str) -> SmokeCall:
    """Confirm an order of one product."""
    price = Money(currency_code="EUR", units=12, nanos=500_000_000)
    order = OrderResult(
        order_id=unique,
        shipping_tracking_id=unique,
        shipping_cost=price,
        shipping_address=Address(street_address="Kanalstr. 1", city="Berlin", country="Germany", zip_code=10115),
        items=[OrderItem(item=CartItem(product_id="cast-iron-pan", quantity=1), cost=price)],
    )
    request = SendOrderConfirmationRequest(email="smoke@example.com", order=order)
    return SmokeCall("shop.EmailService/SendOrderConfirmation", request)
