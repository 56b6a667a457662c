from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.values.money import Money
from chassis.values.orders import Address, OrderLine
from email_service.domain import Confirmation, Order, message_id_of
from email_service.mime import Sender, parse_sender, to_mime
from email_service.rendering import ConfirmationTemplates

TEMPLATES = ConfirmationTemplates()
ORDER = Order(
    "o-1",
    "TRK-7",
    [OrderLine("stoneware-mug", 2, Money.of("EUR", 1029, 500_000_000)), OrderLine("desk-lamp", 1, Money.of("EUR", 70))],
    Money.of("EUR", 5, 990_000_000),
    Address("1 Main Street", "Springfield", "IL", "US", 62704),
)
MARKUP, EURO = "<script>alert('&')</script>", Money.of("EUR", 1)
HOSTILE = Order(MARKUP, MARKUP, [OrderLine(MARKUP, 1, EURO)], EURO, Address(MARKUP, MARKUP, MARKUP, MARKUP, 0))


def rendered(order: Order) -> Confirmation:
    return TEMPLATES.render("jane@example.com", order, {})


def test_the_text_lists_lines_shipping_and_total() -> None:
    lines = [" ".join(line.split()) for line in rendered(ORDER).text.splitlines()]
    assert lines[5:9] == ["2 x stoneware-mug €1,029.50", "1 x desk-lamp €70.00", "Shipping €5.99", "Total €1,105.49"]


def test_both_bodies_show_the_whole_order() -> None:
    email = rendered(ORDER)
    facts = ("o-1", "TRK-7", "1 Main Street", "Springfield, IL 62704", "US", "€1,105.49")
    assert [fact for fact in facts if fact not in email.text or fact not in email.html] == []
    for shown in ("2 &times; stoneware-mug", "€1,029.50", "€70.00", "€5.99"):
        assert shown in email.html


def test_products_are_shown_by_their_names_and_without_one_by_their_ids() -> None:
    email = TEMPLATES.render("jane@example.com", ORDER, {"stoneware-mug": "Stoneware mug", "desk-lamp": ""})
    assert "    2 x Stoneware mug  " in email.text
    assert "2 &times; Stoneware mug" in email.html
    assert "1 x desk-lamp" in email.text


def test_both_bodies_link_to_the_page_of_the_order() -> None:
    email = ConfirmationTemplates("https://shop.example").render("jane@example.com", ORDER, {})
    assert "\nStatus    https://shop.example/orders/o-1\n" in email.text
    assert 'href="https://shop.example/orders/o-1"' in email.html


def test_an_order_id_cannot_leave_the_link() -> None:
    email = ConfirmationTemplates("https://shop.example").render("jane@example.com", HOSTILE, {})
    assert "https://shop.example/orders/%3Cscript%3Ealert%28%27%26%27%29%3C%2Fscript%3E\n" in email.text


def test_markup_in_an_order_is_escaped_in_html_only() -> None:
    email = TEMPLATES.render("jane@example.com", HOSTILE, {MARKUP: MARKUP})
    assert "<script" not in email.html
    assert email.html.count("&lt;script&gt;") >= 7
    assert MARKUP in email.text


def test_missing_details_and_a_missing_storefront_leave_no_empty_sections() -> None:
    email = rendered(Order("o-2", "", [], Money.of("USD", 1), Address("", "", "", "", 0)))
    assert [title for title in ("Tracking", "on its way", "Status") if title in email.text] == []
    assert [markup for markup in ("<address>", "<a ") if markup in email.html] == []


@pytest.mark.parametrize("separator", ["\r\n", "\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_subject_is_one_line(separator: str) -> None:
    order = Order(f"o{separator}Bcc: all@example.com", "", [], Money.of("USD", 1), ORDER.address)
    assert rendered(order).subject == "Your order o Bcc: all@example.com"


@pytest.mark.parametrize(
    ("street", "shown"),
    [
        ("Pay at http://evil.example/now", "Pay at http: //evil. example/now"),
        ("https://192.0.2.1/now", "https: //192.0.2.1/now"),
        ("www.evil.example", "www. evil. example"),
        ("ceo@evil.example", "ceo@ evil. example"),
        ("evil\u3002example", "evil\u3002 example"),
        ("Stra\u00dfe des 17. Juni 135, c/o A. Lovelace, 2.OG", "Stra\u00dfe des 17. Juni 135, c/o A. Lovelace, 2. OG"),
    ],
)
def test_an_address_has_no_link(street: str, shown: str) -> None:
    email = rendered(replace(ORDER, address=replace(ORDER.address, street_address=street)))
    assert f"  {shown}\n" in email.text
    assert f"\n{shown}<br>" in email.html


SENDER = Sender("Shop", "orders@shop.example")
SENT_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EMAIL = Confirmation("o-1", "jane@example.com", "Your order o-1", "Hello €1\n", "<p>Hello €1</p>\n")
HEADERS = ["Date", "From", "To", "Subject", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type"]


def parse(email: Confirmation, sender: Sender = SENDER) -> EmailMessage:
    return message_from_bytes(to_mime(email, sender, SENT_AT), policy=policy.default)


def body(message: EmailMessage, subtype: str) -> str:
    part = message.get_body((subtype,))
    assert part is not None
    content: str = part.get_content()
    return content.replace("\r\n", "\n")


def test_the_headers_have_date_sender_recipient_subject_and_id() -> None:
    message = parse(EMAIL)
    values = ["Shop <orders@shop.example>", "jane@example.com", "Your order o-1", "<o-1@shop>"]
    assert [message[name] for name in ("From", "To", "Subject", "Message-ID")] == values
    assert message["Date"].datetime == SENT_AT


def test_text_precedes_html_so_that_mail_clients_prefer_html() -> None:
    message = parse(EMAIL)
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "text/html"]
    assert (body(message, "plain"), body(message, "html")) == ("Hello €1\n", "<p>Hello €1</p>\n")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])))
def test_any_text_survives_encoding(text: str) -> None:
    message = parse(Confirmation("o-1", "jane@example.com", "Hi", text, text))
    assert body(message, "plain") == body(message, "html") == text + "\n"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=150))
def test_any_subject_survives_encoding_as_one_line(text: str) -> None:
    subject = " ".join(("Order", *text.split()))
    printable = "".join(c for c in subject if c.isprintable())
    message = parse(Confirmation("o-1", "jane@example.com", printable, "", ""))
    assert message.keys() == HEADERS
    assert "".join(str(message["Subject"]).split()) == "".join(printable.split())


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=150))
def test_no_order_id_can_add_a_header(order_id: str) -> None:
    assert parse(Confirmation(message_id_of(order_id), "jane@example.com", "Hi", "", "")).keys() == HEADERS


def test_no_text_can_end_its_own_part() -> None:
    boundary = parse(EMAIL).get_boundary()
    text = f"--{boundary}--\n--{boundary}\nContent-Type: text/html\n\n<b>\n.\n"
    message = parse(Confirmation("o-1", "jane@example.com", "Hi", text, "x"))
    assert (len(list(message.iter_parts())), body(message, "plain")) == (2, text)


def test_no_line_exceeds_the_limit_of_smtp() -> None:
    mail = to_mime(Confirmation("o-1", "a" * 242 + "@example.com", "ü" * 150, "ü" * 5000, "y" * 5000), SENDER, SENT_AT)
    assert max(map(len, mail.split(b"\r\n"))) <= 998
    assert b"\n" not in mail.replace(b"\r\n", b"")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders@shop.example", "orders@shop.example"),
        ("Shop <orders@shop.example>", "Shop <orders@shop.example>"),
        ('"The Shop, Inc." <orders@shop.example>', '"The Shop, Inc." <orders@shop.example>'),
        ("Müller <orders@shop.example>", "Müller <orders@shop.example>"),
        ("Shop\r\nBcc: x <orders@shop.example>", '"Shop Bcc: x" <orders@shop.example>'),
    ],
)
def test_a_sender_may_have_a_name(text: str, shown: str) -> None:
    message = parse(EMAIL, parse_sender(text))
    assert (message.keys(), message["From"]) == (HEADERS, shown)


@pytest.mark.parametrize("text", ["", "Shop", "Shop <>", "a@b, c@d", "<a b@c>"])
def test_a_malformed_sender_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be an e-mail address"):
        parse_sender(text)
