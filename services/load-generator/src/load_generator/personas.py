"""Customer personas: functions that use the shop like real customers and check the pages they get."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from load_generator.pages import Page
from load_generator.session import Session

Persona = Callable[[Session], None]

# Payment providers reserve this card number for tests. No bank issues cards with this number.
_CARD = {"credit_card_number": "4242 4242 4242 4242", "credit_card_cvv": "123", "credit_card_expiration_month": "12"}
_STREETS = ("Harbour Street", "Mill Lane", "Orchard Road", "Station Street", "Castle Hill")
_WORDS = ("kettle", "glass", "wood", "kitchen", "cotton", "lamp")
_CURRENCIES = ("EUR", "USD", "JPY", "GBP", "CHF")


def window_shopper(session: Session) -> None:
    page = session.open("/")
    if categories := page.links("/categories/"):
        session.think()
        page = session.open(session.random.choice(categories))
    for _ in range(session.random.randint(1, 4)):
        session.think()
        page = _open_product(session, page)


def buyer(session: Session) -> None:
    page, fields = _go_to_checkout(session)
    session.ordered(session.submit(page, "/orders", **fields))


def indecisive(session: Session) -> None:
    cart = _fill_cart(session, lines=2)
    session.think()
    emptied = session.submit(cart, "/cart/empty")
    session.expect("/cart/empty" not in emptied.forms, emptied, "the cart is not empty after it was emptied")


def bargain_hunter(session: Session) -> None:
    """Search, compare products in another currency, and sometimes buy one."""
    session.open("/")
    session.think()
    found = session.open(f"/search?q={session.random.choice(_WORDS)}")
    session.think()
    found = session.submit(found, "/currency", currency_code=session.random.choice(_CURRENCIES))
    for _ in range(2):
        session.think()
        found = _open_product(session, found)
    if session.random.random() < 0.2:  # noqa: PLR2004 - one in five
        buyer(session)


def double_clicker(session: Session) -> None:
    """Double-click the order button, which must not place two orders."""
    page, fields = _go_to_checkout(session)
    for ordered in session.submit_twice(page, "/orders", **fields):
        session.ordered(ordered)
    _expect_one_order(session)


def impatient(session: Session) -> None:
    """Order, hang up before the response arrives, and resubmit the form, which must not place another order."""
    page, fields = _go_to_checkout(session)
    session.submit_and_hang_up(page, "/orders", after_seconds=session.random.uniform(0.005, 0.1), **fields)
    session.think()
    session.ordered(session.submit(page, "/orders", **fields))
    _expect_one_order(session)


PERSONAS: Mapping[Persona, int] = {
    window_shopper: 50,
    buyer: 20,
    bargain_hunter: 15,
    indecisive: 7,
    double_clicker: 4,
    impatient: 4,
}
"""Each persona's share of the sessions, in percent."""


def _open_product(session: Session, page: Page) -> Page:
    """Follow a product link on the page, or on the home page if the page has none."""
    if not page.links("/products/"):
        page = session.open("/")
        session.think()
    products = page.links("/products/")
    session.expect(products, page, "no products")
    return session.open(session.random.choice(products))


def _fill_cart(session: Session, *, lines: int) -> Page:
    page = session.open("/")
    for _ in range(lines):
        session.think()
        product = _open_product(session, page)
        session.think()
        page = session.submit(product, "/cart/items", quantity=str(session.random.randint(1, 3)))
    return page


def _go_to_checkout(session: Session) -> tuple[Page, dict[str, str]]:
    """Fill a cart and proceed to the page with the total. Return it and the fields to fill in."""
    _fill_cart(session, lines=session.random.randint(1, 3))
    session.think()
    page, address = session.open("/checkout"), _address(session)
    session.think()
    page = session.submit(page, "/checkout", **address)
    session.think()
    return page, {**address, **_CARD, "credit_card_expiration_year": str(datetime.now(UTC).year + 1)}


def _address(session: Session) -> dict[str, str]:
    number = session.random.randint(1, 10**9)
    return {
        "email": f"customer-{number}@shop.example",
        "street_address": f"{number % 300 + 1} {session.random.choice(_STREETS)}",
        "city": "Hamburg",
        "state": "Hamburg",
        "country": "Germany",
        "zip_code": str(session.random.randint(20_095, 22_769)),
    }


def _expect_one_order(session: Session) -> None:
    session.figures.record_repeat()
    session.think()
    orders = session.open("/orders")
    session.expect(orders.order_ids() == {session.order_id}, orders, "one checkout form led to several orders")
