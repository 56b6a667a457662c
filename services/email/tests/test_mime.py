from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from email_service.domain import Confirmation, message_id_of
from email_service.mime import Sender, parse_sender, to_mime

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
    assert message["Date"].datetime == SENT_AT
    assert message["From"] == "Shop <orders@shop.example>"
    assert message["To"] == "jane@example.com"
    assert message["Subject"] == "Your order o-1"
    assert message["Message-ID"] == "<o-1@shop>"


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
    assert len(list(message.iter_parts())) == 2
    assert body(message, "plain") == text


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
    assert message.keys() == HEADERS
    assert message["From"] == shown


@pytest.mark.parametrize("text", ["", "Shop", "Shop <>", "a@b, c@d", "<a b@c>"])
def test_a_malformed_sender_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be an e-mail address"):
        parse_sender(text)
