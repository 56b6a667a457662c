"""An e-mail as text."""

from email import message_from_string
from email.policy import default

_HEADERS = ("From", "To", "Subject", "Date")


def mail_text(message: str) -> str:
    """Return the main headers and the plain text of a MIME message."""
    mail = message_from_string(message, policy=default)
    headers = [f"{name}: {mail[name]}" for name in _HEADERS if mail[name]]
    body = mail.get_body(("plain", "html"))
    text = body.get_content() if body is not None else ""
    return "\n".join([*headers, "", text.replace("\r", "").rstrip()])
