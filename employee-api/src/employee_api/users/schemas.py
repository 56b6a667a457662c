"""Requests and responses about users."""

import uuid

from pydantic import Field

from employee_api.fields import Email, Name, NewPassword, ShortText
from employee_api.schemas import Input, Output
from employee_api.users.rules import DEFAULT_ROLE


class UserInput(Input):
    """A new employee."""

    name: Name
    email: Email
    password: NewPassword = Field(repr=False)
    role: ShortText | None = Field(default=None, description=f"`{DEFAULT_ROLE}` when omitted or empty")
    dept: ShortText | None = Field(default=None, description="Empty when omitted")


class UserOutput(Output):
    """An employee, without the password."""

    id: uuid.UUID
    name: str
    role: str
    email: str
    color: str
    avatar: str
    dept: str
