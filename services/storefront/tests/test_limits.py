"""Tests of the limits on orders, cards and declines per session, network and mailbox."""

import asyncio
import contextlib

import pytest

from chassis.errors import Aborted, DomainError, FailedPrecondition, Unavailable
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop_kit.card_leaks import leaked_cards, random_card
from shop_kit.clock import Clock
from shop_kit.storefront import Visitor, form_key, shown_total, storefront
from shop_kit.storefront_backends import Backends
from storefront_service import limits as module
from storefront_service.limits import LIMITS, OrderLimits

LIMIT = dict.fromkeys(LIMITS, 3)
DECLINED = FailedPrecondition("the card has expired", reason="CARD_EXPIRED")


def order(
    limits: OrderLimits, session: str, address: str, email: str, error: DomainError | None = None, *, card: str = ""
) -> str:
    """Place an order, which fails if `error` is given. Return the error's reason, or "" if the order was placed."""
    try:
        with limits.order(session, address, email, card):
            if error:
                raise error
    except DomainError as raised:
        return raised.reason
    return ""


def limits(clock: Clock, **per_hour: int) -> OrderLimits:
    return OrderLimits({**dict.fromkeys(LIMITS, 1000), **per_hour}, Telemetry(), clock)


@pytest.mark.parametrize(
    ("limit", "buyers"),
    [
        ("orders_per_session", [("s", f"8.8.8.{n}", f"{n}@shop.example") for n in range(5)]),
        ("orders_per_network", [(f"{n}", "::ffff:" * (n % 2) + "8.8.8.8", f"{n}@shop.example") for n in range(5)]),
        ("orders_per_network", [(f"{n}", f"2a00:1450:4001:81b::{n}", f"{n}@shop.example") for n in range(5)]),
        ("letters_per_recipient", [(f"{n}", f"8.8.8.{n}", "ada@shop.example") for n in range(5)]),
        (
            "letters_per_recipient",
            [
                (f"{n}", f"8.8.8.{n}", m)
                for n, m in enumerate(["A.D.A@x.example", "ada+1@x.EXAMPLE", "ada+2@x.example"] * 2)
            ],
        ),
    ],
)
def test_what_is_beyond_a_limit_is_refused_until_its_share_of_the_hour_passed(
    clock: Clock, limit: str, buyers: list[tuple[str, str, str]]
) -> None:
    limited = limits(clock, **{limit: 3})
    refused = "LIMIT_REACHED"
    assert [order(limited, *buyer) for buyer in buyers][:5] == ["", "", "", refused, refused]
    clock.seconds += 1190
    assert order(limited, *buyers[0]) == refused
    clock.seconds += 20
    assert [order(limited, *buyers[0]) for _ in range(2)] == ["", refused]


def test_others_are_not_refused(clock: Clock) -> None:
    limited = limits(clock, **LIMIT)
    for number in range(5):
        order(limited, "s", "8.8.8.8", f"{number}@shop.example")
    assert order(limited, "another", "8.8.4.4", "ada@shop.example") == ""
    assert order(limited, "third", "2a00:1450::1", "ada@other.example") == ""


@pytest.mark.parametrize(
    "address",
    ["", "testclient", "127.0.0.1", "10.1.2.3", "::1", "fd00::1", "100.64.0.1", "::ffff:10.0.0.1", "fe80::1%eth0"],
)
def test_customers_behind_an_undeclared_proxy_share_no_limit(clock: Clock, address: str) -> None:
    limited = limits(clock, orders_per_network=3)
    assert {order(limited, f"{number}", address, f"{number}@shop.example") for number in range(20)} == {""}


@pytest.mark.parametrize(
    ("limit", "sessions", "address"),
    [
        ("declines_per_session", "sssss", "8.8.8.8"),
        ("declines_per_network", "abcde", "8.8.8.8"),
        ("declines_without_network", "abcde", "10.0.0.1"),
    ],
)
def test_declined_cards_have_a_lower_limit_than_orders(clock: Clock, limit: str, sessions: str, address: str) -> None:
    limited = limits(clock, **{limit: 3})
    reasons = [order(limited, session, address, f"{session}@shop.example", DECLINED) for session in sessions]
    assert reasons == ["CARD_EXPIRED"] * 3 + ["LIMIT_REACHED"] * 2


@pytest.mark.parametrize(("limit", "session"), [("cards_per_session", "s"), ("cards_per_network", "{}")])
def test_many_different_cards_are_refused_even_if_they_are_accepted(clock: Clock, limit: str, session: str) -> None:
    limited = limits(clock, **{limit: 3})
    reasons = [order(limited, session.format(n), "8.8.8.8", f"{n}@shop.example", card=f"{n // 2}") for n in range(10)]
    assert reasons == [""] * 6 + ["LIMIT_REACHED"] * 4


def test_cards_in_flight_count_as_declined_until_they_are_accepted(clock: Clock) -> None:
    limited = limits(clock, declines_per_network=3)
    with contextlib.ExitStack() as in_flight:
        for n in range(3):
            in_flight.enter_context(limited.order(f"{n}", "8.8.8.8", f"{n}@shop.example"))
        assert order(limited, "s", "8.8.8.8", "s@shop.example") == "LIMIT_REACHED"
    assert order(limited, "s", "8.8.8.8", "s@shop.example") == ""


@pytest.mark.parametrize(
    "error", [Unavailable("down"), Aborted("busy"), FailedPrecondition("no", reason="TOTAL_CHANGED")]
)
def test_an_order_that_fails_does_not_count(clock: Clock, error: DomainError) -> None:
    limited = limits(clock, **LIMIT)
    buyer = ("s", "8.8.8.8", "ada@shop.example")
    assert {order(limited, *buyer, error) for _ in range(20)} == {error.reason}
    assert order(limited, *buyer) == ""


def test_many_sessions_take_bounded_memory(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_KEYS", 10)
    limited = limits(clock, **LIMIT)
    for number in range(100):
        order(limited, f"{number}", "8.8.8.8", f"{number}@shop.example")
    assert 0 < len(limited._full_at) <= 10


async def test_a_refused_order_keeps_what_was_typed_and_says_when_to_send_it(
    visitor: Visitor, backends: Backends, capfd: pytest.CaptureFixture[str]
) -> None:
    card = random_card("4242")
    orders = [await visitor.order(credit_card_number=card, email=f"{number}@shop.example") for number in range(10)]
    await visitor.add_to_cart()
    form = await visitor.checkout_form(credit_card_number=card)
    capfd.readouterr()
    response = await visitor.post("/orders", data=form)
    assert {order.status_code for order in orders} == {303}
    assert response.status_code == 429
    assert 300 < int(response.headers["retry-after"]) <= 360
    assert "Nothing was ordered. Wait 6 minutes" in response.text
    assert (form_key(response.text), shown_total(response.text)) == (form["key"], "55.00 USD")
    assert all(text in response.text for text in ("ada@example.com", "1 Harbour Street", "Hamburg", "20095"))
    assert len(backends.checkout.requests) == 10
    written = capfd.readouterr()
    assert leaked_cards((written.out + response.text).encode(), [card]) == set()
    assert "reason=orders_per_session" in written.out
    assert "ada@" not in written.out


async def test_concurrent_orders_do_not_pass_a_limit_and_sending_a_form_again_does_not_count() -> None:
    async with storefront(orders_per_session=3) as shop, shop.visitor() as visitor:
        await visitor.add_to_cart()
        forms = [await visitor.checkout_form(key=f"key-{number}") for number in range(8)]
        assert {(await visitor.post("/orders", data=forms[0])).status_code for _ in range(9)} == {303}
        responses = await asyncio.gather(*(visitor.post("/orders", data=form) for form in forms[1:]))
        assert sorted(response.status_code for response in responses) == [303] * 2 + [429] * 5
        assert len(shop.backends.checkout.requests) == 3


async def test_new_sessions_and_new_cards_send_no_more_letters_to_an_address_and_are_counted() -> None:
    telemetry = Telemetry()
    async with storefront(telemetry) as shop:
        statuses = []
        for _ in range(15):
            async with shop.visitor() as visitor:
                statuses.append((await visitor.order(credit_card_number=random_card("4242"))).status_code)
        assert len(shop.backends.checkout.requests) == 10
    assert statuses == [303] * 10 + [429] * 5
    refused = {name: 5 if name == "letters_per_recipient" else 0 for name in LIMITS}
    counted = telemetry.counter(semconv.HTTP_REFUSALS).values
    assert {dict(labels)["shop.http.refusal.reason"]: count for labels, count in counted.items()} == refused


@pytest.mark.parametrize(("trusted", "neighbour"), [("127.0.0.1", 402), ("", 429)])
async def test_a_network_that_tests_cards_is_refused_and_its_neighbour_only_without_a_trusted_proxy(
    trusted: str, neighbour: int
) -> None:
    client = trusted or "8.8.8.8"
    async with storefront(declines_per_network=3, trusted_proxies=trusted) as shop:
        shop.backends.checkout.error = DECLINED

        async def order_from(number: int, address: str) -> int:
            async with shop.visitor(client) as visitor:
                visitor.headers["x-forwarded-for"] = address
                return (await visitor.order(email=f"{number}@shop.example")).status_code

        assert [await order_from(i, f"2a00:1450:4001:81b::{i}") for i in range(5)] == [402] * 3 + [429] * 2
        assert await order_from(9, "2a00:1450:4001:81c::9") == neighbour
