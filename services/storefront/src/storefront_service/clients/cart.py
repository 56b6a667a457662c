from shop import cart_pb2
from shop.cart_pb2_grpc import CartServiceStub
from shop_internal import cart_lines_pb2
from shop_internal.cart_lines_pb2_grpc import CartLinesStub
from storefront_service.domain import CartLine


class CartClient:
    """Reads and changes carts. Every method raises DomainError if the cart service fails."""

    def __init__(self, stub: CartServiceStub, lines: CartLinesStub) -> None:
        self._stub = stub
        self._lines = lines

    async def read(self, user_id: str, *, timeout_seconds: float | None = None) -> tuple[CartLine, ...]:
        cart = await self._stub.GetCart(cart_pb2.GetCartRequest(user_id=user_id), timeout=timeout_seconds)
        return tuple(CartLine(item.product_id, item.quantity) for item in cart.items)

    async def add(self, user_id: str, line: CartLine, key: str) -> None:
        """Add a quantity of a product, at most once per key. Until the visitor orders, the store may evict the cart."""
        item = cart_pb2.CartItem(product_id=line.product_id, quantity=line.quantity)
        request = cart_pb2.AddItemRequest(user_id=user_id, item=item)
        await self._stub.AddItem(request, metadata=(("idempotency-key", key), ("anonymous-cart", "1")))

    async def set_quantity(self, user_id: str, line: CartLine) -> None:
        """Set the quantity of a product that is in the cart; 0 removes the product."""
        item = cart_pb2.CartItem(product_id=line.product_id, quantity=line.quantity)
        await self._lines.SetQuantity(cart_lines_pb2.SetQuantityRequest(user_id=user_id, item=item))

    async def empty(self, user_id: str) -> None:
        await self._stub.EmptyCart(cart_pb2.EmptyCartRequest(user_id=user_id))
