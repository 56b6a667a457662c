"""Each invariant finds what it is for; a run without faults breaks none."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from chassis.money import Money
from shop.cart_pb2 import CartItem
from shop.money_pb2 import Money as WireMoney
from shop.order_pb2 import OrderItem, OrderResult
from shop_cli.prove.evidence import Answer, CartStory, Evidence, Mail, Recorded, Shipment, Story, Told
from shop_cli.prove.invariants import judge
from shop_cli.prove.plan import Customer, Intent, Line, Wish

TOTAL = Money.of("EUR", 12, 500_000_000)
ORDER = OrderResult(
    order_id="order-id",
    shipping_tracking_id="tracking-id",
    shipping_cost=WireMoney(currency_code="EUR", units=2, nanos=500_000_000),
    items=[
        OrderItem(item=CartItem(product_id="mug", quantity=2), cost=WireMoney(currency_code="EUR", units=10)),
    ],
)
OTHER_ORDER = OrderResult(order_id="other-id")
INTENT = Intent(
    number=3,
    user_id="customer-3",
    email="order-3@prove.example.com",
    street="3 Proving Ground",
    card_number="4000000000000002",
    card_year=2031,
    currency="EUR",
    wish=Wish.GOODS,
    lines=(Line("mug", 2),),
    key="key",
    late=None,
    max_tries=None,
    seed=1,
)
SHIPMENT = Shipment("tracking-id", {"mug": 2})
MAIL = Mail("order-id", INTENT.email, "Order order-id tracking-id mug 3 Proving Ground")
STORY = Story(
    intent=INTENT,
    answer=Answer(Told.PLACED, ORDER, tries=1),
    charges=(TOTAL,),
    shipments=(SHIPMENT,),
    mails=(MAIL,),
    recorded=Recorded("DONE", TOTAL),
    replayed=Answer(Told.PLACED, ORDER),
)
NOT_PLACED = replace(STORY, charges=(), shipments=(), mails=(), recorded=None, replayed=None)


def cart(left: Mapping[str, int], late: Mapping[str, int] | None = None) -> CartStory:
    return CartStory(Customer(INTENT.user_id, (INTENT,)), {"mug": 2}, late or {}, left)


def broken(*stories: Story, carts: tuple[CartStory, ...] = (), quiet_seconds: float | None = 1.0) -> set[str]:
    return {finding.name for finding in judge(Evidence(stories, carts, quiet_seconds)) if not finding.holds}


def test_a_placed_order_breaks_nothing() -> None:
    assert broken(STORY, carts=(cart({}),)) == set()


def test_a_refused_order_without_traces_breaks_nothing() -> None:
    refused = replace(NOT_PLACED, answer=Answer(Told.REFUSED, reason="CARD_EXPIRED"))
    assert broken(refused, carts=(cart({"mug": 2}),)) == set()


def test_an_order_that_nobody_heard_of_but_that_was_placed_breaks_nothing() -> None:
    assert (
        broken(replace(STORY, intent=replace(INTENT, max_tries=1), answer=Answer(Told.NOTHING), replayed=None)) == set()
    )


def test_two_charges_break_i1() -> None:
    assert "I1" in broken(replace(STORY, charges=(TOTAL, TOTAL)))


def test_a_charge_that_belongs_to_no_order_breaks_i1() -> None:
    found = judge(Evidence((STORY,), strangers=("charge k belongs to no order",)))
    assert [finding.name for finding in found if not finding.holds] == ["I1"]


def test_two_shipments_break_i2() -> None:
    assert "I2" in broken(replace(STORY, shipments=(SHIPMENT, Shipment("another", {}))))


def test_a_charge_without_a_shipment_breaks_i2() -> None:
    assert "I2" in broken(replace(STORY, shipments=()))


def test_an_order_still_open_long_after_the_faults_breaks_i2() -> None:
    assert broken(STORY, quiet_seconds=None) == {"I2"}


def test_a_cart_that_is_gone_without_a_shipment_breaks_i2() -> None:
    assert broken(replace(NOT_PLACED, answer=Answer(Told.CART_GONE))) == {"I2"}


def test_a_shipment_without_a_charge_breaks_i3() -> None:
    assert "I3" in broken(replace(STORY, charges=()))


def test_a_shipped_order_without_a_mail_breaks_i4() -> None:
    assert broken(replace(STORY, mails=())) == {"I4"}


def test_mails_of_two_orders_break_i4() -> None:
    assert "I4" in broken(replace(STORY, mails=(MAIL, replace(MAIL, order_id="another"))))


def test_the_same_mail_twice_breaks_nothing() -> None:
    assert broken(replace(STORY, mails=(MAIL, MAIL))) == set()


def test_a_mail_without_a_shipment_breaks_i4() -> None:
    refused = replace(NOT_PLACED, answer=Answer(Told.REFUSED), mails=(MAIL,))
    assert broken(refused) == {"I4"}


@pytest.mark.parametrize("word", ["order-id", "tracking-id", "mug", "3 Proving Ground"])
def test_a_mail_that_says_something_else_breaks_i4(word: str) -> None:
    assert broken(replace(STORY, mails=(replace(MAIL, text=MAIL.text.replace(word, "")),))) == {"I4"}


@pytest.mark.parametrize("state", ["CHARGING", "DECLINED", "ABANDONED", "VOIDED"])
def test_an_ok_reply_for_an_order_in_another_state_breaks_i5(state: str) -> None:
    assert broken(replace(STORY, recorded=Recorded(state, TOTAL))) == {"I5"}


@pytest.mark.parametrize("replayed", [Answer(Told.PLACED, OTHER_ORDER), Answer(Told.REFUSED), Answer(Told.NOTHING)])
def test_another_answer_to_the_same_key_breaks_i5(replayed: Answer) -> None:
    assert broken(replace(STORY, replayed=replayed)) == {"I5"}


def test_a_tracking_id_that_no_shipment_has_breaks_i5() -> None:
    assert "I5" in broken(replace(STORY, shipments=(Shipment("another", {"mug": 2}),)))


def test_a_contradiction_on_the_way_breaks_i5() -> None:
    assert broken(replace(STORY, answer=replace(STORY.answer, contradictions=("two answers",)))) == {"I5"}


def test_a_charge_after_a_refusal_breaks_i6() -> None:
    refused = replace(STORY, answer=Answer(Told.REFUSED, reason="CARD_EXPIRED"), replayed=None)
    assert broken(refused) == {"I6"}


@pytest.mark.parametrize("left", [{"mug": 2}, {"mug": 1}, {"hat": 1}])
def test_a_cart_that_keeps_what_was_bought_breaks_i7(left: dict[str, int]) -> None:
    assert broken(STORY, carts=(cart(left),)) == {"I7"}


def test_a_cart_that_lost_what_was_not_bought_breaks_i7() -> None:
    refused = replace(NOT_PLACED, answer=Answer(Told.REFUSED))
    assert broken(refused, carts=(cart({}),)) == {"I7"}


@pytest.mark.parametrize("left", [{"hat": 1}, {"hat": 1, "mug": 2}])
def test_what_comes_late_stays_alone_or_with_all_of_the_cart(left: dict[str, int]) -> None:
    assert broken(STORY, carts=(cart(left, late={"hat": 1}),)) == set()


def test_losing_what_came_late_breaks_i7() -> None:
    assert broken(STORY, carts=(cart({}, late={"hat": 1}),)) == {"I7"}


def test_a_charge_of_another_amount_breaks_i8() -> None:
    assert broken(replace(STORY, charges=(Money("EUR", TOTAL.total_nanos + 1),))) == {"I8"}


def test_two_wrong_charges_that_make_up_for_each_other_break_i8() -> None:
    more = replace(STORY, charges=(Money("EUR", TOTAL.total_nanos + 1),))
    less = replace(STORY, charges=(Money("EUR", TOTAL.total_nanos - 1),))
    assert broken(more, less) == {"I8"}


def test_too_many_without_an_answer_break_i9() -> None:
    unanswered = replace(NOT_PLACED, answer=Answer(Told.NOTHING))
    assert broken(*[STORY] * 18, unanswered, unanswered) == {"I9"}


def test_who_walks_away_does_not_count_for_i9() -> None:
    walked_away = replace(NOT_PLACED, intent=replace(INTENT, max_tries=1), answer=Answer(Told.NOTHING))
    assert broken(*[STORY] * 18, walked_away, walked_away) == set()
