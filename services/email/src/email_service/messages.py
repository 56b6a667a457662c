"""Messages: encoded confirmations to be sent through the relay."""

from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

from chassis.errors import NotFound, Unavailable

NO_RESPONSE = "NO_RESPONSE"
"""The reason stored with every message that is IN_DOUBT."""

RETENTION_DAYS = 90
"""How long a message is kept after its last change. By default, checkout keeps orders for just as long, so whenever
checkout repeats a request, the first message is still stored and no second one is sent."""


class SpoolUnavailable(Unavailable):
    """The spool cannot be read or written."""

    def __init__(self) -> None:
        super().__init__("the spool is unavailable")


class LetterNotFound(NotFound):
    """The spool has no message with this id."""


class MessageState(StrEnum):
    """The state of a message. While a message is SENDING, the relay has its text but has not responded yet."""

    QUEUED = "QUEUED"
    SENDING = "SENDING"
    SENT = "SENT"
    IN_DOUBT = "IN_DOUBT"
    REFUSED = "REFUSED"


@dataclass(frozen=True)
class NewMessage:
    """A message to store. `content` is MIME with CRLF line endings; `digests` come from `domain.digests_of`."""

    message_id: str
    recipient: str
    content: bytes = field(repr=False)
    digests: bytes = b""


@dataclass(frozen=True, slots=True)
class ClaimedMessage:
    """A message that a process has claimed for sending.

    Attributes:
        attempt: the sequence number of this claim. Only the process with the latest claim can change the message.
        deferrals: how many times the relay has deferred this message.
        digests: None if an older release accepted the message.
    """

    message_id: str
    recipient: str
    content: bytes = field(repr=False)
    attempt: int
    deferrals: int
    digests: bytes | None = b""


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A stored message. `accepted_at` and `changed_at` are Unix timestamps.

    `closed` says who closed an unsent message and why, or is empty. Operators can ignore closed messages.
    """

    message_id: str
    state: MessageState
    recipient: str
    attempts: int
    reason: str
    accepted_at: float
    changed_at: float
    closed: str = ""
    content: bytes = field(default=b"", repr=False)
    digests: bytes = b""


class Outcome(Enum):
    """The result of an attempt to send a message."""

    SENT = auto()
    DEFERRED = auto()
    """The relay temporarily refuses this message."""
    REFUSED = auto()
    """The relay permanently refuses this message."""
    UNDELIVERABLE = auto()
    """The relay permanently refuses the recipient's mailbox."""
    IN_DOUBT = auto()
    """The relay has received the message but has not responded."""
    NOT_SENT = auto()
    """The relay can't be reached, or currently accepts no messages."""
    CLAIM_LOST = auto()
    """Another process has claimed the message."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of an attempt to send. `reason` is the relay's status, such as RELAY_550, or an error name."""

    outcome: Outcome
    reason: str = ""
