"""Rejects forms that another site sent in the visitor's name."""

from urllib.parse import urlsplit

from starlette.datastructures import Headers

_OWN = frozenset({"same-origin", "none"})


def is_foreign(headers: Headers) -> bool:
    """Return whether a browser sent the request from a page of another origin.

    Browsers send at least one of the headers with every form, and pages cannot change them. A request with neither
    is from a program, which has no visitor's cookies.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OWN:
        return True
    origin = headers.get("origin")
    return origin is not None and _host_of(origin) != headers.get("host", "").lower()


def _host_of(origin: str) -> str | None:
    # The scheme is left out: behind a proxy that ends TLS the request arrives without it.
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
