"""Letters: encoded e-mails on their way to the relay. The Protocols of the spool and of a relay."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Protocol

from chassis.errors import NotFound, Unavailable

NO_RESPONSE = "NO_RESPONSE"
"""The reason of a letter that is in doubt."""

RETENTION_SECONDS = 90 * 86_400.0
"""How long a letter is remembered after its last change. A repeated request within this time is the same letter, and
checkout by default deletes its order after the same time."""


class SpoolUnavailable(Unavailable):
    """The spool cannot be read or written."""

    def __init__(self) -> None:
        super().__init__("the spool of letters is unavailable")


class LetterNotFound(NotFound):
    """The spool has no letter with this id."""


class LetterState(StrEnum):
    """How far a letter is. SENDING means that the relay has its text, and that its response is awaited."""

    QUEUED = "QUEUED"
    SENDING = "SENDING"
    SENT = "SENT"
    IN_DOUBT = "IN_DOUBT"
    REFUSED = "REFUSED"


@dataclass(frozen=True, slots=True)
class NewLetter:
    """A letter to be stored; its message is encoded, with CRLF line ends."""

    letter_id: str
    recipient: str
    message: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter that was claimed for sending.

    Attributes:
        message: encoded, with CRLF line ends.
        attempt: number of the claim: only the latest one can change the letter.
        deferrals: how often the relay has temporarily refused this letter.
    """

    letter_id: str
    recipient: str
    message: bytes = field(repr=False)
    attempt: int
    deferrals: int


@dataclass(frozen=True, slots=True)
class LetterRecord:
    """A letter as operators see it; times are seconds since 1970."""

    letter_id: str
    state: LetterState
    recipient: str
    attempts: int
    reason: str
    accepted_at: float
    changed_at: float
    message: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class SpoolStatistics:
    """Numbers of letters by state, without sent ones, and the age of the oldest queued one in seconds."""

    letters: Mapping[LetterState, int]
    oldest_queued_seconds: float


class Spool(Protocol):
    """Stores letters durably: what a method returns is on disk. Every method raises SpoolUnavailable."""

    async def add(self, letters: Sequence[NewLetter]) -> Mapping[str, LetterState]:
        """Store letters unless their ids are stored, all or none. Return the states of the letters with these ids."""

    async def claim(self, limit: int) -> Sequence[Letter]:
        """Claim letters that are due, for CLAIM_SECONDS: until then no other claim returns them."""

    async def begin_sending(self, letter: Letter) -> bool:
        """Change the claimed letter to SENDING. Return False if its claim was lost: it must not be sent."""

    async def finish(self, letter: Letter, state: LetterState, reason: str = "") -> None:
        """Change a claimed letter to SENT, REFUSED or IN_DOUBT."""

    async def postpone(self, letter: Letter, *, delay_seconds: float, reason: str, deferred: bool) -> None:
        """Queue a claimed letter again; it is due after the delay. Count a deferral if the relay deferred it."""

    async def give_up_overdue(self) -> Sequence[str]:
        """Change letters that have been SENDING for too long to IN_DOUBT, and return their ids."""

    async def delete_old(self) -> Mapping[LetterState, int]:
        """Delete some of the letters that have not changed for RETENTION_SECONDS; return their numbers by state."""

    async def requeue(self, letter_id: str) -> bool:
        """Queue a letter that is REFUSED or IN_DOUBT. Return whether it was."""

    async def list_letters(self, state: LetterState, limit: int) -> Sequence[LetterRecord]:
        """Return letters in a state other than SENT, without their messages, the oldest change first."""

    async def read(self, letter_id: str) -> LetterRecord | None:
        """Return a letter with its message, None if there is none."""

    async def statistics(self) -> SpoolStatistics:
        """Count the letters that were not sent."""

    async def check(self) -> None:
        """Return if the spool can be read."""


class Outcome(Enum):
    """The result of an attempt to send a letter."""

    SENT = auto()
    DEFERRED = auto()
    """The relay temporarily refuses this letter."""
    REFUSED = auto()
    """The relay permanently refuses this letter."""
    IN_DOUBT = auto()
    """The relay has the letter and did not respond."""
    NOT_SENT = auto()
    """The relay accepts no letters at the moment, whichever it is."""
    CLAIM_LOST = auto()
    """Another process has claimed the letter."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An outcome and its reason, a code of the relay such as RELAY_550 or the name of an error."""

    outcome: Outcome
    reason: str = ""


class MailRelay(Protocol):
    """Takes letters to deliver."""

    async def send(self, letter: Letter, begin_sending: Callable[[], Awaitable[bool]]) -> Attempt:
        """Hand a letter over.

        Await `begin_sending` when all that is missing is the end of the message, and end the message only if it returns
        True: from then on the relay may deliver the letter. Errors of `begin_sending` are raised.
        """
