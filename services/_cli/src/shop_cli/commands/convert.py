import re
from decimal import Decimal
from typing import Annotated

import typer

from chassis.errors import InvalidArgument
from chassis.rpc.wire import money_to_wire
from chassis.values.money import NANOS_PER_UNIT, Money, is_currency_code
from shop import currency_pb2, money_pb2
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop_cli.clients import currency_client
from shop_cli.commands.options import Address, Json
from shop_cli.output.printing import amount, console, print_json


async def convert(
    value: Annotated[str, typer.Argument(metavar="AMOUNT", help="Amount, such as 12.50.")],
    from_code: Annotated[str, typer.Argument(metavar="FROM", help="Currency of the amount, such as USD.")],
    to_code: Annotated[str, typer.Argument(metavar="TO", help="Currency to convert to, such as EUR.")],
    *,
    as_json: Json = False,
    address: Address = None,
) -> None:
    """Convert an amount between currencies, as in `shop convert 12.50 USD EUR`. `--json` does not round."""
    async with currency_client(address) as currency:
        converted = await convert_amount(currency, _parse_money(value, from_code.upper()), to_code)
    if as_json:
        print_json(converted)
    else:
        console.print(amount(converted))


async def convert_amount(currency: CurrencyServiceStub, value: money_pb2.Money, to_code: str) -> money_pb2.Money:
    """Convert an amount. `to_code` may be in lower case."""
    request = currency_pb2.CurrencyConversionRequest(to_code=to_code.upper())
    getattr(request, "from").CopyFrom(value)
    return await currency.Convert(request)


def _parse_money(value: str, currency_code: str) -> money_pb2.Money:
    if not re.fullmatch(r"-?[0-9]{1,19}(\.[0-9]{1,9})?", value):
        raise InvalidArgument.field("amount", "must be a number such as 12.50 with at most 19 digits and nine decimals")
    if not is_currency_code(currency_code):
        raise InvalidArgument.field("from", "must be a currency code of three letters")
    return money_to_wire(Money(currency_code, int(Decimal(value) * NANOS_PER_UNIT)).in_range())
