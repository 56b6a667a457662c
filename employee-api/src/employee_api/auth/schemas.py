"""Requests and responses about authentication."""

import uuid

from pydantic import Field

from employee_api.fields import NewPassword, NonEmptyText, Timestamp
from employee_api.schemas import Input, Output, StrictInput


class LoginInput(Input):
    """Credentials of any length: a password that is too long is a wrong one."""

    email: NonEmptyText = Field(examples=["grace@example.com"])
    password: NonEmptyText = Field(repr=False, examples=["nine brown otters swim"])


class SignInOutput(Output):
    """An attempt to sign in: `success`, `wrong_password`, `deactivated`, or `limited` if there were too many before."""

    id: uuid.UUID
    outcome: str
    address: str
    user_agent: str
    created_at: Timestamp


class SignInPage(Output):
    """Attempts to sign in, newest first."""

    items: list[SignInOutput]
    next: str | None = Field(description="The `cursor` of the next page; null on the last page")


class PasswordChangeInput(StrictInput):
    """A new password for oneself."""

    current_password: NonEmptyText = Field(repr=False, examples=["nine brown otters swim"])
    new_password: NewPassword = Field(repr=False)


class PasswordResetInput(StrictInput):
    """A new password, by the token of a reset."""

    token: NonEmptyText = Field(repr=False)
    password: NewPassword = Field(repr=False)
