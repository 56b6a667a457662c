"""Rules for the fields of a user."""

import unicodedata

DEFAULT_ROLE = "employee"
COLORS = ("#818cf8", "#f59e0b", "#34d399", "#f472b6", "#fb923c", "#60a5fa", "#a78bfa")


def avatar(name: str) -> str:
    """Return the initials: the first characters of the space-separated words, cut to two, then in upper case."""
    return "".join(word[0] for word in name.split(" ") if word)[:2].upper()


def email_key(email: str) -> str:
    """Return the form in which e-mails are compared: case, composition and surrounding white space do not count."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", email.strip()).casefold())


def normalize_password(password: str) -> str:
    """Return the form that is hashed: systems compose the same characters differently."""
    return unicodedata.normalize("NFC", password)
