"""Identities of a local shop: a certificate for each service and for the operator, and who may call what."""

import json
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import yaml

import shop
import shop_internal
from chassis.tls.authority import Authority
from shop_cli.local.workspace import root

OPERATOR = "operator"
"""Who uses the commands; it may call everything."""

_INTERNAL = {
    "cart": ("CartLines", "OrderedCart"),
    "checkout": ("OrderJournal", "OrderQuotes"),
    "email": ("Confirmations", "LetterSpool", "MailRecords"),
    "payment": ("PaymentLedger",),
    "shipping": ("ShipmentManifest",),
}
_VALID = timedelta(days=365)
_SPIFFE_ID = "spiffe://shop.local/ns/local/sa/{}"


@dataclass(frozen=True)
class Identities:
    """The certificates in a folder, below it one folder for each name, and the calls that the chart declares."""

    folder: Path

    @classmethod
    def issue(cls, folder: Path, names: Iterable[str]) -> "Identities":
        """Issue a certificate to each service and to the operator; files of an earlier shop are replaced.

        The authority is new each time, and its key is nowhere stored.
        """
        authority = Authority.create("local shop", _VALID)
        for name in (*names, OPERATOR):
            issued = authority.issue(
                ["localhost", f"shop-{name}"], _SPIFFE_ID.format(name), _VALID, ["127.0.0.1", "::1"]
            )
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            files = {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": authority.certificate}
            for file, content in files.items():
                path = folder / name / file
                path.touch(mode=0o600)
                path.write_bytes(content)
        return cls(folder)

    @property
    def operator(self) -> Path:
        """The folder with the operator's certificate."""
        return self.folder / OPERATOR

    def variables(self, name: str) -> dict[str, str]:
        """Return the variables of a process that has a service's identity."""
        callers = {_SPIFFE_ID.format(caller): methods for caller, methods in _callers_of(name).items()}
        # Health is checked by TLS here, on the other ports: this one only must not be that of another service.
        return {"TLS_FOLDER": str(self.folder / name), "ALLOWED_CALLS": json.dumps(callers), "HEALTH_PORT": "0"}


def _callers_of(callee: str) -> dict[str, list[str]]:
    """Return the full names of a service's methods by the names of their callers: what the chart's values declare."""
    values = yaml.safe_load((root() / "charts/shop/values.yaml").read_text())
    callers = {**values["services"], "reconciliation": values["reconciliation"], "test": values["tests"]}
    public = f"shop.{callee.replace('-', ' ').title().replace(' ', '')}Service"
    found = {OPERATOR: [*_methods_of(public, *(f"shop.internal.{name}" for name in _INTERNAL.get(callee, ())))]}
    for caller, entry in callers.items():
        methods = [f"{public}/{method}" for method in entry.get("calls", {}).get(callee, ())]
        methods += [f"shop.internal.{method}" for method in entry.get("internalCalls", {}).get(callee, ())]
        if methods:
            found[caller] = methods
    return found


def _methods_of(*names: str) -> Iterator[str]:
    for package in (shop, shop_internal):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if module.name.endswith("_pb2"):
                for service in import_module(module.name).DESCRIPTOR.services_by_name.values():
                    if service.full_name in names:
                        yield from (f"{service.full_name}/{method.name}" for method in service.methods)
