"""The names of an order's states, as commands print and accept them: without the prefix of the contract."""

from shop_internal.orders_pb2 import OrderState

STATE_PREFIX = "ORDER_STATE_"


def order_state_name(state: OrderState.ValueType) -> str:
    return OrderState.Name(state).removeprefix(STATE_PREFIX)
