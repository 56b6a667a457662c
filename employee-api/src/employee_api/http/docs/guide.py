"""The parts of the page that are not about one operation: how to sign in, the limits, and the errors."""

import ast
import inspect
from collections.abc import Callable
from typing import cast

from chassis.errors import DomainError
from employee_api.fields import MAX_PAGE_SIZE
from employee_api.http.docs.html import code, element, paragraphs, table, text
from employee_api.http.docs.operations import COOKIES, SERVER
from employee_api.http.inputs import MAX_BODY_BYTES
from employee_api.http.openapi_parts import Json
from employee_api.http.problems import PROBLEM_JSON, error_anchor, http_status
from employee_api.settings import AuthMode

_WITHOUT_SIGN_IN = (
    "This server runs with `AUTH_MODE=off`: it has no sessions, and every client may use every operation, except those "
    "on one's own account, which need a session."
)
_OBSERVED = (
    "This server runs with `AUTH_MODE=observe`: it refuses no request for its credentials, and records which requests "
    "it would refuse with `AUTH_MODE=enforce`. Sign in all the same, so that nothing changes for you then."
)
_ENFORCED = "This server runs with `AUTH_MODE=enforce`: most operations require a session."


def sign_in_section(document: Json, mode: AuthMode) -> str:
    """Return how clients sign in, if they can."""
    heading = element("h2", "Sign in", id="sign-in")
    if mode is AuthMode.OFF:
        return element("section", heading, paragraphs(_WITHOUT_SIGN_IN))
    return element(
        "section",
        heading,
        paragraphs(_ENFORCED if mode is AuthMode.ENFORCE else _OBSERVED),
        element("p", _operation_link(document, "/api/auth/login", "A login"), " sets the cookie of a session."),
        paragraphs(
            f"Browsers keep it by themselves. curl keeps it in the file `{COOKIES}`, as in the commands of this page. "
            "It is for HTTPS, and for plain HTTP to the same machine.",
        ),
        element(
            "p",
            "Programs send ",
            _operation_link(document, "/api/auth/tokens", "an API token"),
            ", or the value of that cookie, in a header instead:",
        ),
        element("pre", code(f"curl -H 'Authorization: Bearer <token>' {SERVER}/api/tasks")),
        paragraphs(
            "A session ends with the logout, when it is not used for a while, at its maximum age, and with its user. "
            "A request without a valid one gets 401 `AUTHENTICATION_REQUIRED`.",
        ),
    )


def _operation_link(document: Json, path: str, label: str) -> str:
    """Return a link to the operation with which clients POST to the path."""
    return element("a", label, href=f"#operation-{document['paths'][path]['post']['operationId']}")


def limits_section() -> str:
    rows = [
        (
            "A request's body",
            f"at most {MAX_BODY_BYTES // 1024} KiB of JSON unless its operation says otherwise",
        ),
        (
            "A page of a list",
            f"at most {MAX_PAGE_SIZE} items; the next page has the `cursor` that is `next` in this one",
        ),
        ("A text", "as many characters as its field allows, and none that is NUL"),
        ("An id", "a UUID in its canonical form, with hyphens"),
        ("A month", "`YYYY-MM`, in UTC; for an export in the time zone `tz`"),
        ("A request's id", "at most 64 letters, digits, dots, hyphens and underscores, in `X-Request-ID`"),
    ]
    return element(
        "section",
        element("h2", "Limits", id="limits"),
        table((text(what), text(limit)) for what, limit in rows),
        paragraphs(
            "A client that exceeds a limit for requests or for concurrent work gets 429 or 503 with the seconds to "
            "wait in `Retry-After`."
        ),
    )


def errors_section() -> str:
    """Return a section for each error, where the `type` of a problem document leads to."""
    errors = sorted(every_error(), key=lambda error: (http_status(error), error.reason))
    return element(
        "section",
        element("h2", "Errors", id="errors"),
        paragraphs(
            'The body of an error is `{"error": "…"}`, with a text for people. Programs send '
            f"`Accept: {PROBLEM_JSON}` and get a problem document (RFC 9457): its `code` never changes, its `type` is "
            "the link to the code below, and its `errors` are the invalid fields.",
        ),
        *(
            element(
                "section",
                element("h3", code(error.reason), f" {int(http_status(error))}"),
                paragraphs(f"“{error.message}”", _docstring(type(error))),
                id=error_anchor(error.reason),
            )
            for error in errors
        ),
    )


def every_error() -> list[DomainError]:
    """Return an example of each error of the API: of each class with a message of its own."""
    own = [kind for kind in _descendants(DomainError) if kind.__module__.startswith("employee_api.")]
    examples: list[Callable[[], DomainError]] = [kind for kind in own if "__init__" in vars(kind)]
    return [example() for example in examples]


def _docstring(kind: type[DomainError]) -> str:
    # Images run without docstrings (PYTHONOPTIMIZE), but not without sources.
    (definition,) = ast.parse(inspect.getsource(kind)).body
    return " ".join((ast.get_docstring(cast("ast.ClassDef", definition)) or "").split())


def _descendants(kind: type[DomainError]) -> set[type[DomainError]]:
    children = kind.__subclasses__()
    return set(children).union(*map(_descendants, children))
