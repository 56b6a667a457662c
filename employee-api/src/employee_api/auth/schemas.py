import uuid

from pydantic import Field

from employee_api.access import Scope
from employee_api.fields import Moment, NonEmptyText, Timestamp, TokenName
from employee_api.schemas import Input, Output, Page, StrictInput, Success


class LoginInput(Input):
    """Login credentials. An e-mail or password that is too long for any account is treated as a wrong one."""

    email: NonEmptyText = Field(examples=["grace@example.com"])
    password: NonEmptyText = Field(repr=False, examples=["nine brown otters swim"])


class SignInOutput(Output):
    """A sign-in attempt. Its outcome is `success`, `wrong_password`, `deactivated` or `limited` (too many failures)."""

    id: uuid.UUID
    outcome: str = Field(examples=["wrong_password"])
    address: str = Field(examples=["192.0.2.7"])
    user_agent: str = Field(examples=["Mozilla/5.0 (X11; Linux x86_64)"])
    created_at: Timestamp


class SignInPage(Page[SignInOutput]):
    """Attempts to sign in, newest first."""


class SessionOutput(Output):
    """An active login session."""

    id: uuid.UUID
    created_at: Timestamp
    last_seen_at: Timestamp
    expires_at: Timestamp
    address: str = Field(description="Of the login", examples=["192.0.2.7"])
    user_agent: str = Field(description="Of the login", examples=["Mozilla/5.0 (X11; Linux x86_64)"])
    current: bool = Field(description="Whether it is the session of this request")


class EndedSessions(Success):
    """The number of sessions that were ended."""

    ended: int


class TokenInput(StrictInput):
    """A new API token."""

    current_password: NonEmptyText = Field(repr=False, examples=["nine brown otters swim"])
    name: TokenName = Field(description="What it is for", examples=["nightly report"])
    scopes: list[Scope] = Field(
        min_length=1, max_length=len(Scope), description="What it may do at most, as far as its user's role allows it"
    )
    expires_at: Moment | None = Field(
        default=None, description="At most 90 days ahead, which is the default", examples=[None]
    )


class TokenOutput(Output):
    """An API token, without its secret."""

    id: uuid.UUID
    name: str = Field(examples=["nightly report"])
    scopes: list[Scope]
    created_at: Timestamp
    last_used_at: Timestamp | None = Field(description="At most a minute before its last use")
    expires_at: Timestamp | None


class NewTokenOutput(TokenOutput):
    """A new API token with its secret, which is shown only in this response."""

    token: str = Field(repr=False, description="Send it as `Authorization: Bearer …`", examples=["shop_…"])
