"""Converts domain errors to gRPC statuses and back."""

import re
from contextlib import suppress
from datetime import timedelta
from typing import cast

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from chassis import errors
from shop_internal.error_reasons_pb2 import ErrorReason

_DOMAIN = "shop"

# Hints to add to gRPC's connection errors, for operators who have just set TLS_FOLDER.
_CLOSED = " (does the peer require TLS, or not accept the certificate in TLS_FOLDER?)"
_HINTS = {
    "WRONG_VERSION_NUMBER": " (TLS_FOLDER is set here: does the peer serve plaintext?)",
    "CERTIFICATE_VERIFY_FAILED": " (the peer's certificate, by ca.crt in TLS_FOLDER)",
    "Hostname Verification Check failed": " (the peer's certificate has another name; TLS_FOLDER is set here)",
    # Without the colon, this would also match messages about connections lost during a call, which need no hint.
    ": Socket closed": _CLOSED,
    "recvmsg:Connection reset": _CLOSED,
    "Secure read failed": _CLOSED,
}

_CODES = {kind: grpc.StatusCode[code] for code, kind in errors.KINDS.items()}
_KINDS = {code: kind for kind, code in _CODES.items()}
# A service that isn't allowed to call its peer is misconfigured: its own callers aren't at fault, and can retry later.
_KINDS[grpc.StatusCode.PERMISSION_DENIED] = errors.Unavailable
# Reject eight digits in a row, even with underscores between them, so that a reason can't contain a card number.
_REASON = re.compile(r"(?!.*[0-9](?:_*[0-9]){7})[A-Z0-9_]{1,63}")
# Record only these reasons, because a peer outside this project may send anything.
_REASONS = frozenset(ErrorReason.keys()) | {code.name for code in grpc.StatusCode}


def code_of(error: errors.DomainError) -> grpc.StatusCode:
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), grpc.StatusCode.INTERNAL)


def recorded_reason(error: Exception) -> str:
    """Return the error's reason if this project defines that reason, otherwise the error's kind.

    Never record an unexpected error's message or a reason from outside this project: these may contain anything.
    """
    if not isinstance(error, errors.DomainError):
        return type(error).__name__
    return error.reason if error.reason in _REASONS else error.default_reason


def reason_from_peer(reason: str) -> str:
    """Return a peer's reason, or PEER_BROKEN if it is malformed: stored reasons must not contain card numbers."""
    return reason if _REASON.fullmatch(reason) else errors.PeerBroken.default_reason


def to_status(error: errors.DomainError) -> grpc.Status:
    """Convert an error to a status with ErrorInfo, plus BadRequest for invalid fields and RetryInfo for a retry delay.

    INTERNAL gets only a fixed message, because an unexpected error's message may contain anything.
    """
    code = code_of(error)
    if code is grpc.StatusCode.INTERNAL:
        return rpc_status.to_status(status_pb2.Status(code=code.value[0], message="internal error"))
    status = status_pb2.Status(code=code.value[0], message=error.message)
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=error.reason, domain=_DOMAIN, metadata=error.metadata)]
    if error.violations:
        bad_request = error_details_pb2.BadRequest()
        for violation in error.violations:
            bad_request.field_violations.add(field=violation.field, description=violation.rule)
        details.append(bad_request)
    if error.retry_after_seconds is not None:
        details.append(error_details_pb2.RetryInfo(retry_delay=timedelta(seconds=error.retry_after_seconds)))
    for detail in details:
        status.details.add().Pack(detail)
    return rpc_status.to_status(status)


def from_rpc_error(error: grpc.aio.AioRpcError) -> errors.DomainError:
    """Convert a peer's status to a domain error. Status codes that have no error class become Internal."""
    info, bad_request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    status = None
    with suppress(DecodeError, ValueError):  # a peer outside this project may send malformed details
        status = rpc_status.from_call(cast("grpc.Call", error))  # AioRpcError has everything that from_call uses
    for packed in status.details if status else ():
        for detail in (info, bad_request, retry):
            packed.Unpack(detail)  # does nothing if the detail has another type
    kind = _KINDS.get(error.code(), errors.Internal)
    message = error.details() or error.code().name
    message += "".join(hint for text, hint in _HINTS.items() if text in message)
    reason = reason_from_peer(info.reason or error.code().name)
    violations = [errors.FieldViolation(found.field, found.description) for found in bad_request.field_violations]
    delay = retry.retry_delay.ToNanoseconds() / 1e9 if retry.HasField("retry_delay") else None
    return kind(message, reason=reason, metadata=info.metadata, retry_after_seconds=delay, violations=violations)
