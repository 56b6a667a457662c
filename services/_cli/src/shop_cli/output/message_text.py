"""The readable part of a MIME message."""

from email import message_from_string
from email.policy import default

_HEADERS = ("From", "To", "Subject", "Date")


def message_text(content: str) -> str:
    """Return the main headers and the plain text."""
    message = message_from_string(content, policy=default)
    headers = [f"{name}: {message[name]}" for name in _HEADERS if message[name]]
    body = message.get_body(("plain", "html"))
    text = body.get_content() if body is not None else ""
    return "\n".join([*headers, "", text.replace("\r", "").rstrip()])
