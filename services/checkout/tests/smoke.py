"""The smoke call of the checkout service."""

from shop.address_pb2 import Address
from shop.cart_pb2 import AddItemRequest, CartItem
from shop.checkout_pb2 import PlaceOrderRequest
from shop.payment_pb2 import CreditCardInfo
from shop_smoke import SmokeCall


def smoke_call(unique: str) -> SmokeCall:
    """Order one product with the documented test card."""
    item = CartItem(product_id="cast-iron-pan", quantity=1)
    request = PlaceOrderRequest(
        user_id=unique,
        user_currency="EUR",
        address=Address(street_address="Kanalstr. 1", city="Berlin", country="Germany", zip_code=10115),
        email="smoke@example.com",
        credit_card=CreditCardInfo(
            credit_card_number="4242424242424242",
            credit_card_cvv=123,
            credit_card_expiration_year=2099,
            credit_card_expiration_month=12,
        ),
    )
    fill_cart = SmokeCall("shop.CartService/AddItem", AddItemRequest(user_id=unique, item=item))
    return SmokeCall("shop.CheckoutService/PlaceOrder", request, setup=(fill_cart,))
