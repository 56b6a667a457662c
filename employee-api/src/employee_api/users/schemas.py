import uuid

from pydantic import Field

from employee_api.fields import Email, Name, NewPassword, NonEmptyText, Role, ShortText, Timestamp, VisibleEmail
from employee_api.schemas import Input, Output, Patch, StrictInput

DEFAULT_ROLE = "employee"


class UserInput(Input):
    """A new employee."""

    name: Name
    email: Email
    password: NewPassword = Field(repr=False)
    role: ShortText | None = Field(
        default=None, description=f"`{DEFAULT_ROLE}` when omitted or empty", examples=["designer"]
    )
    dept: ShortText | None = Field(default=None, description="Empty when omitted", examples=["Research"])


class RegistrationInput(UserInput):
    """The data with which a new employee registers."""

    invite: ShortText | None = Field(
        default=None, repr=False, description="The token of an invitation, which decides the role"
    )


class UserOutput(Output):
    """An employee, without the password."""

    id: uuid.UUID
    name: str = Field(examples=["Grace Hopper"])
    role: str = Field(examples=["designer"])
    email: str = Field(examples=["grace@example.com"])
    color: str = Field(examples=["#818cf8"])
    avatar: str = Field(examples=["GH"])
    dept: str = Field(examples=["Research"])


class OwnAccountPatch(Patch):
    """Changes to the caller's own account; omitted fields keep their values."""

    name: Name = ""


class AccountPatch(OwnAccountPatch):
    """Changes to an employee's account; omitted fields keep their values."""

    email: VisibleEmail = Field(default="", examples=["grace.hopper@example.com"])
    role: Role = Field(default="", description="Setting it approves the account")
    dept: ShortText = Field(default="", examples=["Research"])


class AccountOutput(UserOutput):
    """An employee and the state of their account. Employees who aren't approved, or are deactivated, have no access."""

    approved: bool
    deactivated_at: Timestamp | None
    created_at: Timestamp


class InvitationInput(Input):
    """An invitation for one employee."""

    role: Role = Field(description="The role that they get")
    dept: ShortText = Field(
        default="", description="Their department; the empty one lets them choose", examples=["Research"]
    )
    expires_in_days: int = Field(default=7, ge=1, le=30, strict=True)


class InvitationOutput(Output):
    """An invitation to register."""

    id: uuid.UUID
    role: str = Field(examples=["designer"])
    dept: str = Field(examples=["Research"])
    creator_id: uuid.UUID | None
    created_at: Timestamp
    expires_at: Timestamp
    used_at: Timestamp | None


class CreatedInvitation(InvitationOutput):
    """A new invitation. The token is not shown again."""

    token: str = Field(repr=False, examples=["q4YbT0vXJ8mDkC2uW7nLr5sPzA1eGhF3iKoNxR6tVyM"])


class PasswordChangeInput(StrictInput):
    """A new password for the caller's own account."""

    current_password: NonEmptyText = Field(repr=False, examples=["nine brown otters swim"])
    new_password: NewPassword = Field(repr=False)


class PasswordResetInput(StrictInput):
    """A new password, and the password reset token that authorizes it."""

    token: NonEmptyText = Field(repr=False, examples=["q4YbT0vXJ8mDkC2uW7nLr5sPzA1eGhF3iKoNxR6tVyM"])
    password: NewPassword = Field(repr=False)


class CreatedPasswordReset(Output):
    """Permission to set a user's password once. The token is not shown again."""

    user_id: uuid.UUID
    token: str = Field(repr=False, examples=["q4YbT0vXJ8mDkC2uW7nLr5sPzA1eGhF3iKoNxR6tVyM"])
    expires_at: Timestamp
