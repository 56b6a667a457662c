from chassis.rpc.wire import item_to_wire, items_from_wire
from chassis.values.orders import Item
from shop import cart_pb2
from shop.cart_pb2_grpc import CartServiceStub
from shop_internal import cart_lines_pb2
from shop_internal.cart_lines_pb2_grpc import CartLinesStub


class CartClient:
    """Reads and changes carts. Every method raises DomainError if the cart service fails."""

    def __init__(self, stub: CartServiceStub, lines: CartLinesStub) -> None:
        self._stub = stub
        self._lines = lines

    async def read(self, user_id: str, *, timeout_seconds: float | None = None) -> tuple[Item, ...]:
        cart = await self._stub.GetCart(cart_pb2.GetCartRequest(user_id=user_id), timeout=timeout_seconds)
        return items_from_wire(cart.items)

    async def add(self, user_id: str, line: Item, key: str) -> None:
        """Add a product, at most once per key. Until the visitor orders, the store may evict the cart."""
        request = cart_pb2.AddItemRequest(user_id=user_id, item=item_to_wire(line))
        await self._stub.AddItem(request, metadata=(("idempotency-key", key), ("anonymous-cart", "1")))

    async def set_quantity(self, user_id: str, line: Item) -> None:
        """Set the quantity of a product that is in the cart; 0 removes the product."""
        await self._lines.SetQuantity(cart_lines_pb2.SetQuantityRequest(user_id=user_id, item=item_to_wire(line)))

    async def empty(self, user_id: str) -> None:
        await self._stub.EmptyCart(cart_pb2.EmptyCartRequest(user_id=user_id))
