import asyncio
import re
from types import SimpleNamespace

import pytest

from chassis.errors import Unavailable
from shop_internal import mail_records_pb2, orders_pb2
from shop_kit.clock import Clock
from shop_kit.fake_peers import Fault
from shop_kit.storefront import Storefront, Visitor
from shop_kit.storefront_backends import Backends
from shop_kit.waiting import wait_until

MAIL = """From: Shop <orders@shop.example>
To: ada@example.com
Subject: Your order
MIME-Version: 1.0
Content-Type: multipart/alternative; boundary="b"

--b
Content-Type: text/plain; charset="utf-8"

Thank you <script>alert(1)</script>
--b
Content-Type: text/html; charset="utf-8"

<p>Thank you</p>
--b--
"""
STEPS = {
    orders_pb2.ORDER_STATE_CHARGING: ["Charging", "Shipped", "E-mail queued"],
    orders_pb2.ORDER_STATE_SHIPPED: ["Charged", "Shipped", "E-mail queued"],
    orders_pb2.ORDER_STATE_DONE: ["Charged", "Shipped", "E-mail queued"],
}


async def placed(visitor: Visitor) -> str:
    """Place an order and return the path of its page."""
    path: str = (await visitor.order()).headers["location"]
    return path


async def test_the_page_of_an_order_has_lines_total_journal_and_takeovers(visitor: Visitor, backends: Backends) -> None:
    path = await placed(visitor)
    page = await visitor.page(path)
    shown = ("Cast-iron pan", "$55.00", "Complete", "02134 Boston", "inserted")
    assert [text for text in shown if text not in page] == []
    assert page.index("Cast-iron pan") < page.index("<summary>") < page.index("inserted")
    (found,) = backends.checkout.orders.values()
    found.order.epoch = 2  # as after an attempt that was declined
    assert "taken over" not in await visitor.page(path)
    found.history.add(step="taken_over", state=found.order.state, attempt=1, epoch=2)
    assert "taken over by another worker." in await visitor.page(path)


async def test_orders_of_the_session_are_listed_and_those_of_another_one_not_found(
    shop: Storefront, visitor: Visitor
) -> None:
    path = await placed(visitor)
    page = await visitor.page("/orders")
    assert f'<a href="{path}">Cast-iron pan</a>' in page
    assert "/static/products/cast-iron-pan.svg" in page
    async with shop.visitor() as other:
        assert "This browser has no orders yet." in await other.page("/orders")
        for part in ("", "/events", "/email", "/email/content"):
            await other.page(path + part, 404)


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("path", ["/orders", "/orders/some-id", "/orders/some-id/events"])
async def test_a_journal_that_is_down_or_hangs_says_that_orders_continue(
    visitor: Visitor, backends: Backends, path: str, hangs: bool
) -> None:
    backends.checkout_peer.hang() if hangs else backends.checkout_peer.fail(Unavailable("down"))
    assert "those you placed continue" in await visitor.page(path, 503)


async def test_the_page_of_an_order_is_shown_without_a_catalog(visitor: Visitor, backends: Backends) -> None:
    await visitor.add_to_cart()  # adding an item begins the session
    backends.catalog.fail(Unavailable("down"))
    order_id = backends.checkout.record(visitor.user_id)
    assert "cast-iron-pan" in await visitor.page(f"/orders/{order_id}")


@pytest.mark.parametrize("state", orders_pb2.OrderState.values()[1:])
async def test_the_page_explains_every_state_and_steps_have_the_names_of_what_is_true(
    visitor: Visitor, backends: Backends, state: "orders_pb2.OrderState.ValueType"
) -> None:
    backends.checkout.state = state
    page = await visitor.page(await placed(visitor))
    assert '<h2 id="state">' in page
    steps = re.findall("<li class=.*>(.*)</li>", page.partition('class="steps"')[2].partition("</ol>")[0])
    assert steps == STEPS.get(state, steps)
    if state == orders_pb2.ORDER_STATE_CHARGING:  # visitors can follow the order without a script
        assert ("In progress" in page, "Refresh it" in page) == (True, True)


async def test_the_stream_of_a_finished_order_ends(visitor: Visitor) -> None:
    stream = await visitor.page(await placed(visitor) + "/events")
    names = ("progress", "journal", "end")
    assert [line for line in stream.splitlines() if line.startswith("event:")] == [f"event: {name}" for name in names]


async def test_a_stream_ends_in_time_and_survives_an_outage_of_checkout(
    visitor: Visitor, backends: Backends, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr("storefront_service.pages.orders.time", SimpleNamespace(monotonic=clock))
    backends.checkout.state = orders_pb2.ORDER_STATE_CHARGING
    path = await placed(visitor)
    reads = backends.checkout_peer.calls
    async with asyncio.TaskGroup() as tasks:
        stream = tasks.create_task(visitor.page(path + "/events"))
        await wait_until(lambda: reads["GetOrder"] >= 1)
        backends.checkout_peer.faults["GetOrder"] = Fault(Unavailable("down"))
        read = reads["GetOrder"]
        await wait_until(lambda: reads["GetOrder"] >= read + 2)
        clock.seconds += 15
    assert "checkout does not respond" in stream.result()
    assert "event: end" not in stream.result()


async def test_the_stream_of_an_order_in_progress_sends_each_change_while_further_ones_are_refused(
    visitor: Visitor, backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storefront_service.pages.orders._MAX_STREAMS", 1)
    backends.checkout.state = orders_pb2.ORDER_STATE_CHARGING
    path = await placed(visitor)
    (found,) = backends.checkout.orders.values()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(visitor.page(f"{path}/events"))
        await wait_until(lambda: backends.checkout_peer.calls["GetOrder"] >= 2)
        await visitor.page(f"{path}/events", 503)
        found.order.state = orders_pb2.ORDER_STATE_DONE
    stream = first.result()
    assert stream.count("event: progress") == 2
    assert stream.index("In progress") < stream.index("Complete")
    await visitor.page(f"{path}/events")


async def test_the_e_mail_is_shown_as_text_and_framed_without_rights_once_there_is_one(
    visitor: Visitor, backends: Backends
) -> None:
    path = await placed(visitor)
    assert "There is no e-mail yet" in await visitor.page(f"{path}/email")
    backends.checkout.mail = MAIL
    assert "&lt;script&gt;alert(1)" in await visitor.page(f"{path}/email")
    content = await visitor.get(f"{path}/email/content")
    assert "<p>Thank you</p>" in content.text
    assert "sandbox" in content.headers["content-security-policy"]
    assert "script-src" not in content.headers["content-security-policy"]
    backends.checkout_peer.faults["GetMail"] = Fault(Unavailable("down"))
    assert "your order is not affected" in await visitor.page(f"{path}/email", 503)
    await visitor.page(path)


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (mail_records_pb2.MAIL_STATE_QUEUED, "It waits to be handed to the mail relay."),
        (mail_records_pb2.MAIL_STATE_SENT, "It was sent."),
        (mail_records_pb2.MAIL_STATE_FAILED, "It could not be sent."),
    ],
)
async def test_the_page_of_the_e_mail_says_whether_it_was_sent(
    visitor: Visitor, backends: Backends, state: "mail_records_pb2.MailState.ValueType", shown: str
) -> None:
    backends.checkout.mail, backends.checkout.mail_state = MAIL, state
    assert shown in await visitor.page(f"{await placed(visitor)}/email")
