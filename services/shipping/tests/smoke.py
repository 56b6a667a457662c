from shop.address_pb2 import Address
from shop.cart_pb2 import CartItem
from shop.shipping_pb2 import GetQuoteRequest
from shop_smoke import SmokeCall


def smoke_call(unique: str) -> SmokeCall:
    """Get a quote for shipping one product."""
    address = Address(street_address="Kanalstr. 1", city="Berlin", country="Germany", zip_code=10115)
    request = GetQuoteRequest(address=address, items=[CartItem(product_id="cast-iron-pan", quantity=1)])
    return SmokeCall("shop.ShippingService/GetQuote", request)
