import asyncio

import httpx2
import pytest

from chassis.errors import (
    Aborted,
    DeadlineExceeded,
    DomainError,
    FailedPrecondition,
    FieldViolation,
    IdempotencyKeyReused,
    InvalidArgument,
    Unavailable,
)
from shop_kit.card_leaks import leaked_cards, random_card
from shop_kit.storefront import Visitor, form_key, order_fields, shown_total
from shop_kit.storefront_backends import Backends


async def submit(visitor: Visitor, **changes: str) -> tuple[dict[str, str], httpx2.Response]:
    """Order one pan. Return the submitted form and the response."""
    await visitor.add_to_cart()
    form = await visitor.checkout_form(**changes)
    return form, await visitor.post("/orders", data=form)


TYPED = ("ada@example.com", "1 Harbour Street", "Hamburg", "Germany", "20095")


async def test_an_order_has_what_was_typed_and_leads_to_its_page(visitor: Visitor, backends: Backends) -> None:
    response = await visitor.order(credit_card_number="4242-4242 4242 4242")
    (order_id,) = backends.checkout.orders
    assert (response.status_code, response.headers["location"]) == (303, f"/orders/{order_id}")
    (request,) = backends.checkout.requests
    assert (request.email, request.address.street_address, request.address.zip_code) == (TYPED[0], TYPED[1], 20095)
    assert (request.credit_card.credit_card_number, request.credit_card.credit_card_cvv) == ("4242424242424242", 123)
    assert (request.user_id, request.user_currency) == (visitor.user_id, "USD")


async def test_the_total_is_shown_before_the_card_is_asked_for(visitor: Visitor, backends: Backends) -> None:
    await visitor.add_to_cart()
    first = await visitor.page("/checkout")
    response = await visitor.post("/checkout", data=order_fields())
    assert (response.status_code, response.headers["location"]) == (303, "/checkout")
    second = await visitor.page("/checkout")
    assert ("Place order" in first, "credit_card" in first) == (False, False)
    assert "Place order and pay $55.00" in second
    assert "20095 Hamburg, Germany" in second
    assert 'name="credit_card_number"' in second
    (quoted,) = backends.checkout.quotes
    assert (quoted.user_id, quoted.address.country, quoted.email) == (visitor.user_id, "Germany", TYPED[0])
    assert quoted.credit_card.credit_card_number == ""


async def test_the_total_follows_the_currency_and_is_charged_as_shown(visitor: Visitor, backends: Backends) -> None:
    await visitor.post("/currency", data={"currency_code": "EUR", "return_to": "/"})
    await visitor.add_to_cart()
    form = await visitor.checkout_form()
    await visitor.post("/currency", data={"currency_code": "JPY", "return_to": "/"})
    assert shown_total(await visitor.page("/checkout")) == "55.00 JPY"
    await visitor.post("/orders", data=form)
    assert backends.checkout.requests[0].user_currency == "EUR"
    assert backends.checkout.expected_totals == ["55.00 EUR"]


@pytest.mark.parametrize("total", ["", "55", "55.00", "55.00 usd", "-1.00 USD", "\u0665\u0665.00 USD", "55.00 USD\n"])
async def test_a_form_that_did_not_show_the_total_orders_nothing_and_shows_it(
    visitor: Visitor, backends: Backends, total: str
) -> None:
    response = await visitor.order(total=total)
    assert (response.status_code, response.headers["location"]) == (303, "/checkout")
    assert shown_total(await visitor.page("/checkout")) == "55.00 USD"
    assert backends.checkout.requests == []


async def test_without_a_quote_the_first_form_says_so_and_a_declined_order_returns_to_it(
    visitor: Visitor, backends: Backends
) -> None:
    await visitor.add_to_cart()
    form = await visitor.checkout_form()
    backends.checkout.quote_error = Unavailable("down")
    page = await visitor.page("/checkout", 503)
    assert ("Checkout does not respond" in page, "credit_card" in page) == (True, False)
    backends.checkout.error = FailedPrecondition("the card has expired", reason="CARD_EXPIRED")
    response = await visitor.post("/orders", data=form)
    assert (response.status_code, 'action="/checkout"' in response.text) == (402, True)


async def test_where_an_order_goes_is_stored_without_the_card_until_it_is_placed(visitor: Visitor) -> None:
    await visitor.add_to_cart()
    response = await visitor.post("/checkout", data=order_fields())
    cookie = response.headers["set-cookie"]
    assert ("Harbour" in cookie, "credit_card" in cookie) == (True, False)
    assert all(part in cookie for part in ("HttpOnly", "Path=/checkout", "SameSite=lax"))
    assert "expires" not in cookie.lower()
    await visitor.post("/orders", data={**order_fields(), "key": form_key(await visitor.page("/checkout"))})
    assert "delivery" not in visitor.cookies


async def test_an_address_that_is_too_long_for_a_cookie_has_a_total_too(visitor: Visitor) -> None:
    await visitor.add_to_cart()
    response = await visitor.post(
        "/checkout", data=order_fields() | {"street_address": "\u6771" * 250, "city": "\u4eac" * 250}
    )
    assert (response.status_code, shown_total(response.text)) == (200, "55.00 USD")


@pytest.mark.parametrize("cookie", ["x", "email=ada", "%ff=%ff", "country=Atlantis&zip_code=x"])
async def test_a_forged_cookie_leads_to_the_first_form(visitor: Visitor, cookie: str) -> None:
    await visitor.add_to_cart()
    visitor.cookies.set("delivery", cookie)
    assert "Place order" not in await visitor.page("/checkout")


async def test_a_form_that_is_sent_again_or_twice_at_once_orders_once_and_says_so(
    visitor: Visitor, backends: Backends
) -> None:
    await visitor.add_to_cart()
    form = await visitor.checkout_form()
    clicks = await asyncio.gather(*(visitor.post("/orders", data=form) for _ in range(2)))
    (path,) = {response.headers["location"].partition("?")[0] for response in clicks}
    again = await visitor.post("/orders", data=form)
    assert again.headers["location"] == f"{path}?repeated=1"
    assert "This was a repeat of an order you already placed" in await visitor.page(again.headers["location"])
    assert len(backends.checkout.requests) == 1


@pytest.mark.parametrize(
    ("error", "query"),
    [
        (Unavailable("in progress", reason="ORDER_IN_PROGRESS"), ""),
        (Aborted("in flight", reason="ORDER_IN_FLIGHT"), ""),
        (FailedPrecondition("needs review", reason="ORDER_NEEDS_REVIEW"), ""),
        (FailedPrecondition("needs a refund", reason="ORDER_NEEDS_REFUND"), ""),
        (FailedPrecondition("ordered in another window", reason="CART_ORDERED"), "?repeated=1"),
    ],
)
async def test_an_order_that_continues_or_exists_leads_to_its_page(
    visitor: Visitor, backends: Backends, error: DomainError, query: str
) -> None:
    backends.checkout.error, backends.checkout.error_names_order = error, True
    response = await visitor.order()
    (order_id,) = backends.checkout.orders
    assert (response.status_code, response.headers["location"]) == (303, f"/orders/{order_id}{query}")


async def test_a_decline_says_why_and_keeps_what_was_typed_but_neither_the_key_nor_card_data(
    visitor: Visitor, backends: Backends
) -> None:
    backends.checkout.error = FailedPrecondition("the card has expired", reason="CARD_EXPIRED")
    backends.checkout.error_names_order = True
    card = random_card("4242")
    form, response = await submit(visitor, credit_card_number=card, credit_card_cvv="9876")
    (order_id,) = backends.checkout.orders
    page = response.text
    assert response.status_code == 402
    assert ("The card has expired. You were not charged." in page, order_id in page) == (True, True)
    shown = [text for text in TYPED if f'value="{text}"' in page or f"<option selected>{text}" in page]
    assert shown == list(TYPED)
    assert (leaked_cards(response.content, [card]), "9876" in page) == (set(), False)
    assert form_key(page) != form["key"]


@pytest.mark.parametrize("field", ["credit_card.credit_card_number", "address.street_address", "address.country"])
async def test_fields_that_checkout_rejects_are_marked(visitor: Visitor, backends: Backends, field: str) -> None:
    violations = [FieldViolation(field, "must not be empty")]
    backends.checkout.error = InvalidArgument("invalid", reason="CARD_INVALID", violations=violations)
    response = await visitor.order()
    assert response.status_code == 422
    assert f'id="{field.partition(".")[2]}-error">Must not be empty.' in response.text


async def test_an_order_in_a_currency_that_has_ended_is_shown_in_another(visitor: Visitor, backends: Backends) -> None:
    backends.checkout.error = InvalidArgument.field("user_currency", "is not supported")
    response = await visitor.order(total="55.00 BGN")
    assert response.status_code == 422
    assert "The shop no longer takes the currency you chose." in response.text
    assert shown_total(response.text) == "55.00 USD"
    assert 'href="#user_currency"' not in response.text


async def test_a_changed_total_is_shown_before_anything_is_ordered(visitor: Visitor, backends: Backends) -> None:
    backends.checkout.error = FailedPrecondition("changed", reason="TOTAL_CHANGED", metadata={"total": "55.00 USD"})
    form, response = await submit(visitor, total="49.00 USD")
    assert response.status_code == 409
    assert "It is 55.00 USD now, and nothing was ordered." in response.text
    assert (form_key(response.text), shown_total(response.text)) == (form["key"], "55.00 USD")


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (DeadlineExceeded("slow"), 503, "charged at most once"),
        (Unavailable("down", reason="JOURNAL_UNAVAILABLE"), 503, "charged at most once"),
        (IdempotencyKeyReused(), 409, "Look at your orders"),
    ],
)
async def test_while_the_outcome_is_unknown_the_same_form_may_be_sent_again_but_not_one_with_the_key_of_another_order(
    visitor: Visitor, backends: Backends, error: DomainError, status: int, text: str
) -> None:
    backends.checkout.error = error
    form, response = await submit(visitor)
    assert (response.status_code, text in response.text) == (status, True)
    assert (form_key(response.text) == form["key"], shown_total(response.text)) == (status == 503, "55.00 USD")


async def test_an_invalid_field_is_marked_shown_as_text_and_never_ordered(visitor: Visitor, backends: Backends) -> None:
    response = await visitor.order(zip_code="SW1A 1AA", city='"><script>alert(1)</script>')
    assert response.status_code == 422
    assert 'id="zip_code-error"' in response.text
    assert "<script>alert" not in response.text
    assert backends.checkout.requests == []


async def test_without_a_cart_even_one_that_was_emptied_meanwhile_the_cart_is_shown(
    visitor: Visitor, backends: Backends
) -> None:
    assert (await visitor.get("/checkout")).headers["location"] == "/cart"
    backends.checkout.error = FailedPrecondition("the cart is empty", reason="CART_EMPTY")
    assert (await visitor.order()).headers["location"] == "/cart"


async def test_no_card_data_reach_a_log_or_a_cookie(
    visitor: Visitor, backends: Backends, capfd: pytest.CaptureFixture[str]
) -> None:
    card = random_card("4242")
    backends.checkout.error = Unavailable("down")
    responses = [
        await visitor.order(credit_card_number=card),
        await visitor.order(credit_card_number=card, city=""),
        await visitor.order(credit_card_number=card, credit_card_cvv="x"),
        await visitor.post(
            "/orders",
            content=f"credit_card_number={card}&key=%ff",
            headers={"content-type": "application/x-www-form-urlencoded"},
        ),
    ]
    written = capfd.readouterr()
    received = "".join(f"{response.headers}{response.text}" for response in responses)
    assert leaked_cards((written.out + written.err + received).encode(), [card]) == set()
