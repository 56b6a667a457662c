import contextlib
import re

import idna

from chassis.errors import InvalidArgument
from chassis.values.fields import require_text

_MAX_LENGTH = 254
# Refuse quoted local parts, comments and lists (RFC 5321): headers and SMTP commands must name just one mailbox.
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"(?=.{{1,64}}@){_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*")


def require_email_address(value: str, field: str) -> str:
    """Convert the domain to ASCII (IDNA) and return the address. Raise InvalidArgument if it isn't a valid address."""
    local, at, domain = value.rpartition("@")
    if not domain.isascii() and len(value) <= _MAX_LENGTH:
        with contextlib.suppress(UnicodeError):  # UnicodeError is the base class of IDNAError
            value = f"{local}{at}{idna.encode(domain, uts46=True).decode()}"
    require_text(value, field, max_length=_MAX_LENGTH)
    if not _ADDRESS.fullmatch(value):
        raise InvalidArgument.field(field, "must be one e-mail address")
    return value
