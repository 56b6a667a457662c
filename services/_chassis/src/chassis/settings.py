import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from typing_extensions import override

from chassis.failpoints import Failpoints
from chassis.tls.callers import Callers, parse_callers
from chassis.tls.certificates import Certificates
from chassis.values.booleans import BOOLEANS
from chassis.values.keys import HmacKeys

MAX_PORT = 65_535

SettingsT = TypeVar("SettingsT", bound="Settings")

Balancing = Literal["clients", "mesh"]
Port = Annotated[int, Meta(ge=0, le=MAX_PORT)]
PositiveInt = Annotated[int, Meta(gt=0)]
PositiveFloat = Annotated[float, Meta(gt=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]


class SecretStr:
    """A secret string that neither `str` nor `repr` reveals."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        return self._text

    @override
    def __repr__(self) -> str:
        return "SecretStr(**********)"


@dataclass(frozen=True)
class Parse:
    """Annotates a setting with its parser. The parser raises ValueError for invalid text, without quoting secrets."""

    function: Callable[[str], Any]


def _parse_file(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise ValueError("must be the path of a file")
    return path


FilePath = Annotated[Path, Parse(_parse_file)]


def secret_url(*schemes: str) -> Parse:
    """Return a parser for a URL that may contain a password or key. The parser's errors never quote the URL."""

    def parse(text: str) -> SecretStr:
        try:
            url = urlsplit(text)
            # An unescaped /, ? or # in a password ends the host part early, so the @ ends up in one of the other parts.
            has_host = url.hostname and "@" not in f"{url.path}{url.query}{url.fragment}"
            valid = url.scheme in schemes and bool(has_host or url.scheme == "unix") and url.port != 0
        except ValueError:  # don't report this error's message, which may quote part of the password
            valid = False
        if not valid:
            raise ValueError(f"must begin with {'://, '.join(schemes)}://; percent-encode special characters")
        return SecretStr(text)

    return Parse(parse)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that every process has, read from environment variables, such as `log_level` from LOG_LEVEL.

    Subclasses become dataclasses without a decorator. Annotate a field with `Parse` unless its type is Path, SecretStr
    or a type that msgspec can parse.
    """

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    use_http_proxy: bool = False
    ssl_cert_file: FilePath | None = None  # only checked here: TLS libraries read the variable themselves
    # Whether our own clients or a service mesh balance calls across pods and retry failed calls.
    balancing: Balancing = "clients"
    # The folder with tls.crt, tls.key and ca.crt, for mutual TLS as a server and as a client. If unset, TLS is off.
    tls_folder: Annotated[Certificates, Parse(Certificates.load)] | None = None

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


HmacKeySetting = Annotated[HmacKeys, Parse(HmacKeys.parse)]


class ServerSettings(Settings):
    host: str = "[::]"
    port: Port
    # After SIGTERM, serve new calls for `drain_seconds`, then give calls in flight `grace_seconds` to finish.
    drain_seconds: NonNegativeFloat = 2
    grace_seconds: NonNegativeFloat = 20
    reload: bool = False


class ServiceSettings(ServerSettings):
    port: Port = 50051
    # The port for services that only our own services and operators may call, such as PaymentLedger.
    internal_port: Port = 50052
    # Which methods each caller may call. Requires TLS_FOLDER.
    allowed_calls: Annotated[Callers, Parse(parse_callers)] = field(default_factory=dict)
    # A plaintext port for health checks only, so that probes succeed even if clients exhaust the other ports' limits.
    health_port: Port | None = None
    # Clients find new pods only when a connection closes, so a new pod may take this long to get its share of calls.
    max_connection_age_seconds: PositiveFloat = 60
    max_concurrent_rpcs: PositiveInt = 256
    max_connections: PositiveInt = 500
    failpoints: Annotated[Failpoints, Parse(Failpoints)] = field(default_factory=Failpoints)
    # Whether to serve `shop.internal.Failpoints`. Never enable this in a live shop.
    lab: bool = False


def load(settings: type[SettingsT], environment: Mapping[str, str] = os.environ) -> SettingsT:
    """Read settings from the environment. If variables are missing or invalid, print a line for each, and exit."""
    return settings(**_load(settings, fields(settings), environment))


def load_one(settings: type[Settings], name: str) -> Any:
    """Read one setting, even if other settings are missing or invalid."""
    (chosen,) = (found for found in fields(settings) if found.name == name)
    return _load(settings, [chosen], os.environ).get(name, chosen.default)


def _load(settings: type[Settings], chosen: Iterable[Field[Any]], environment: Mapping[str, str]) -> dict[str, Any]:
    hints = get_type_hints(settings, include_extras=True)
    values: dict[str, Any] = {}
    problems: list[str] = []
    for setting in chosen:
        variable, hint = setting.name.upper(), hints[setting.name]
        text = environment.get(variable, "")
        try:
            # Strip the line break that a secret created from a file may end with, but never change an HMAC key.
            if text := text if hint == HmacKeySetting else text.strip():  # an empty variable counts as unset
                values[setting.name] = _parse(text, hint)
            elif setting.default is MISSING and setting.default_factory is MISSING:
                problems.append(f"{variable}: Field required")
        except ValueError as error:
            problems.append(f"{variable}: {error}")
    if problems:
        print(*problems, sep="\n", file=sys.stderr)  # noqa: T201 - logging isn't set up yet
        sys.exit(2)
    return values


def _parse(text: str, hint: Any) -> Any:
    # Drop None from the type, or msgspec would convert the text "null" to None.
    (wanted,) = (part for part in get_args(hint) if part is not type(None)) if type(None) in get_args(hint) else (hint,)
    for annotation in getattr(wanted, "__metadata__", ()):
        if isinstance(annotation, Parse):
            return annotation.function(text)
    if wanted is bool:  # msgspec doesn't accept yes, no, on or off
        if text.lower() not in BOOLEANS:
            raise ValueError("must be true or false")
        return BOOLEANS[text.lower()]
    choices = get_args(wanted) if get_origin(wanted) is Literal else ()
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        choices = tuple(str(member.value) for member in wanted)
    if choices and (text := text.lower()) not in choices:  # accept capital letters, as in LOG_LEVEL=INFO
        raise ValueError(f"must be one of {', '.join(choices)}")
    try:
        return msgspec.convert(text, wanted, strict=False, dec_hook=lambda type_, value: type_(value))
    except msgspec.ValidationError as error:
        raise ValueError(str(error).removesuffix(", got `str`")) from None
