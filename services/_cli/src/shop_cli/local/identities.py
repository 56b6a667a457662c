import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path

import yaml

from chassis.tls.certificates import Certificates
from shop_cli.local.authority import Authority
from shop_cli.local.workspace import root
from shop_internal import letter_spool_pb2, orders_pb2

OPERATOR = "operator"
"""The identity that commands use. It may call everything except failpoints."""

_OPERATED = {"checkout": orders_pb2, "email": letter_spool_pb2}
"""Definitions of the internal services that operators use, by the program that serves them."""

_VALID = timedelta(days=365)
_SPIFFE_ID = "spiffe://shop.local/ns/local/sa/{}"


@dataclass(frozen=True)
class Identities:
    """Certificates for the services and the operator. Each has its own subfolder of `folder`."""

    folder: Path
    lab: bool = False

    @classmethod
    def issue(cls, folder: Path, names: Iterable[str], *, lab: bool = False) -> "Identities":
        """Issue certificates to the services, the operator and, with `lab`, the laboratory, which sets failpoints.

        This replaces and invalidates earlier certificates, because each call creates a new authority.
        """
        authority = Authority.create("local shop", _VALID)
        for name in (*names, OPERATOR, *(["lab"] if lab else ())):
            names_of_host = ["localhost", f"shop-{name}"]  # `shop-<name>` is the service's host name in a cluster
            issued = authority.issue(names_of_host, _SPIFFE_ID.format(name), _VALID, ["127.0.0.1", "::1"])
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            files = {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": authority.certificate}
            for file, content in files.items():
                path = folder / name / file
                path.touch(mode=0o600)
                path.write_bytes(content)
        return cls(folder, lab)

    @property
    def operator(self) -> Certificates:
        return Certificates.load(str(self.folder / OPERATOR))

    def variables(self, name: str) -> dict[str, str]:
        """Return the environment variables with a service's certificate folder and the calls that it must allow."""
        declared = _callers()[name]
        callers = {**declared, OPERATOR: sorted({method for methods in declared.values() for method in methods})}
        if self.lab:
            callers["lab"] = ["shop.internal.Failpoints/ListFailpoints", "shop.internal.Failpoints/SetFailpoint"]
        allowed = {_SPIFFE_ID.format(caller): methods for caller, methods in callers.items()}
        return {"TLS_FOLDER": str(self.folder / name), "ALLOWED_CALLS": json.dumps(allowed)}


@cache
def _callers() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the full names of allowed methods by callee, then by caller, as declared in the chart's values."""
    values = yaml.safe_load((root() / "charts/shop/values.yaml").read_text())
    own = {"reconciliation": values["reconciliation"], "test": values["tests"]}
    found: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, definition in _OPERATED.items():
        for called in definition.DESCRIPTOR.services_by_name.values():
            found[name][OPERATOR] += [f"{called.full_name}/{method}" for method in called.methods_by_name]
    for name, service in values["services"].items():
        exposed = service.get("exposed", ()) if service.get("protocol", "grpc") == "grpc" else ()
        found[name][OPERATOR] += [f"{_full_name(name)}/{method}" for method in exposed]
    for caller, client in {**values["services"], **own}.items():
        for callee, methods in client.get("calls", {}).items():
            found[callee][caller] += [f"{_full_name(callee)}/{method}" for method in methods]
        for callee, methods in client.get("internalCalls", {}).items():
            found[callee][caller] += [f"shop.internal.{method}" for method in methods]
    return found


def _full_name(name: str) -> str:
    return f"shop.{name.replace('-', ' ').title().replace(' ', '')}Service"
