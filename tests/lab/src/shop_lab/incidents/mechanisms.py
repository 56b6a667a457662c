"""How faults act: each mechanism returns its inverse, which is saved, before it acts."""

import asyncio
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from chassis.errors import DomainError, InvalidArgument, Unavailable
from chassis.rpc import client
from shop_cli.local.workspace import root
from shop_internal.failpoints_pb2 import Failpoint, SetFailpointRequest
from shop_internal.failpoints_pb2_grpc import FailpointsStub
from shop_lab.incidents import upkeep
from shop_lab.incidents.catalogue import (
    FailpointInjection,
    LoadInjection,
    ObjectInjection,
    PatchInjection,
    StoreInjection,
)
from shop_lab.incidents.cluster import Cluster, url_of
from shop_lab.incidents.local import Local
from shop_lab.incidents.state import Inverse
from shop_lab.incidents.targets import CannotAct, Endpoint

Target = Cluster | Local
"""What faults are injected into. Methods raise CannotAct if the shop has not got what they need."""

_CALL_SECONDS = 60.0
_FINDER = Path(__file__).with_name("finder.py")
FINDER_NAME = "sitecustomize.py"
_HEADER = re.compile(r"^\+\+\+ b/(\w+(?:/\w+)+)\.py", re.MULTILINE)
# The load generator with one persona, whose card is well-formed and of a brand that payment does not accept.
_CARD_TESTERS = """
import sys
from load_generator import personas
from load_generator.__main__ import main
personas._CARD["credit_card_number"] = "3782 822463 10005"
personas.PERSONAS.clear()
personas.PERSONAS[personas.buyer] = 1
sys.exit(main())
"""


class Mechanism(Protocol):
    """A way to break a shop."""

    def prepare(self, injection: Any, target: Target, token: str, seconds: float) -> Inverse:
        """Check that the injection can act, change nothing, and return how to undo it. Raise CannotAct."""

    def act(self, injection: Any, target: Target, inverse: Inverse) -> None:
        """Inject. Raise CannotAct."""

    def undo(self, target: Target, inverse: Inverse) -> None:
        """Undo an injection, even if it was undone before, has ended, or never acted."""


class FailpointMechanism:
    """Sets failpoints by `shop.internal.Failpoints`."""

    def prepare(self, injection: FailpointInjection, target: Target, token: str, seconds: float) -> Inverse:
        with target.endpoints(injection.service) as found:
            if len(found) <= (injection.pods or 0):
                raise CannotAct(f"{injection.service} runs in {len(found)} processes, which are too few for this fault")
            processes = [endpoint.process for endpoint in found[: injection.pods]]
        until = time.time() + seconds
        return {"service": injection.service, "id": token, "processes": processes, "until": until}

    def act(self, injection: FailpointInjection, target: Target, inverse: Inverse) -> None:
        with target.endpoints(injection.service) as found:
            chosen = [endpoint for endpoint in found if endpoint.process in inverse["processes"]]
            seconds = max(0.0, inverse["until"] - time.time())
            failpoint = Failpoint(id=inverse["id"], specification=injection.specification, seconds_to_live=seconds)
            try:
                asyncio.run(_set(chosen, failpoint))
            except InvalidArgument as error:
                raise CannotAct(f"{injection.service} refuses {injection.specification!r}: {error.message}") from error
            except DomainError as error:
                raise CannotAct(f"{injection.service} did not take the failpoint: {error.message}") from error

    def undo(self, target: Target, inverse: Inverse) -> None:
        with target.endpoints(inverse["service"]) as found:
            chosen = [endpoint for endpoint in found if endpoint.process in inverse["processes"]]
            with suppress(Unavailable):  # one that has just ended
                asyncio.run(_set(chosen, Failpoint(id=inverse["id"])))


async def _set(endpoints: Sequence[Endpoint], failpoint: Failpoint) -> None:
    async def set_at(endpoint: Endpoint) -> None:
        channel = client.channel(
            endpoint.address,
            "",
            timeout_seconds=_CALL_SECONDS,
            certificates=endpoint.certificates,
            server_name=endpoint.server_name,
        )
        try:
            await FailpointsStub(channel).SetFailpoint(SetFailpointRequest(failpoint=failpoint))
        finally:
            await channel.close()

    await asyncio.gather(*map(set_at, endpoints))


class PatchMechanism:
    """Puts a patched module in front of the original one, and restarts the service."""

    def prepare(self, injection: PatchInjection, target: Target, token: str, seconds: float) -> Inverse:
        file = f"{module_of(injection)}.py"
        patched(injection)
        if file in target.modules(injection.service):
            raise CannotAct(f"another fault has replaced {file} of {injection.service}")
        return {"service": injection.service, "file": file, **target.restoring_modules(injection.service, file)}

    def act(self, injection: PatchInjection, target: Target, inverse: Inverse) -> None:
        changes: dict[str, str | None] = {FINDER_NAME: _FINDER.read_text(), inverse["file"]: patched(injection)}
        target.replace_modules(injection.service, changes)

    def undo(self, target: Target, inverse: Inverse) -> None:
        present = set(target.modules(inverse["service"]))
        if inverse["file"] in present:
            last = present <= {inverse["file"], FINDER_NAME}
            removed = [inverse["file"], *([FINDER_NAME] if last else [])]
            target.replace_modules(inverse["service"], dict.fromkeys(removed))


def module_of(injection: PatchInjection) -> str:
    """Return the full name of the module that a diff changes. Raise CannotAct unless it is one."""
    found = _HEADER.findall(injection.diff)
    if len(found) != 1:
        raise CannotAct(
            f"a patch changes one module, and its header names it as `+++ b/package/module.py`, not {found}"
        )
    return str(found[0]).replace("/", ".")


def patched(injection: PatchInjection) -> str:
    """Return the patched module. Raise CannotAct if the diff does not apply to today's."""
    path = f"{module_of(injection).replace('.', '/')}.py"
    sources = list(root().glob(f"*/*/src/{path}")) + list(root().glob(f"*/src/{path}"))
    if not sources:
        raise CannotAct(f"there is no module {path} to patch")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path
        copy.parent.mkdir(parents=True)
        copy.write_text(sources[0].read_text())
        command = ["git", "apply", "--whitespace=nowarn", "-"]
        applied = subprocess.run(command, cwd=folder, input=injection.diff, capture_output=True, text=True, check=False)
        if applied.returncode:
            raise CannotAct(f"the patch does not apply to {path}: {' '.join(applied.stderr.split())}")
        return copy.read_text()


class ObjectMechanism:
    """Changes objects of a release by kubectl."""

    def prepare(self, injection: ObjectInjection, target: Target, token: str, seconds: float) -> Inverse:
        cluster = _cluster(target)
        found = cluster.resource(injection.target)
        originals = [_original(found, path, new, injection.target) for path, new in injection.set.items()]
        _refuse_overlap(url_of(found), [original["path"] for original in originals], cluster)
        return {"changed": [{"url": url_of(found), "originals": originals}]}

    def act(self, injection: ObjectInjection, target: Target, inverse: Inverse) -> None:
        cluster, (changed,) = _cluster(target), inverse["changed"]
        found = cluster.get(changed["url"])
        patch = [operation for path, new in injection.set.items() for operation in upkeep.change(found, path, new)]
        cluster.patch(changed["url"], patch)

    def undo(self, target: Target, inverse: Inverse) -> None:
        cluster = _cluster(target)
        for changed in inverse["changed"]:
            get, patch = partial(cluster.get, changed["url"]), partial(cluster.patch, changed["url"])
            upkeep.set_back(get, patch, changed["originals"])


def _cluster(target: Target) -> Cluster:
    if not isinstance(target, Cluster):
        raise CannotAct("only a shop on a cluster has Kubernetes objects")
    return target


def _original(found: Any, path: str, new: Any, target: str) -> dict[str, Any]:
    try:
        patch, original = upkeep.change(found, path, new), upkeep.original(found, path)
    except (ValueError, AttributeError, TypeError) as error:
        raise CannotAct(f"{target} has no {path}: {error}") from error
    if not patch:
        raise CannotAct(f"{target} has this value of {path} already")
    return original


def _refuse_overlap(url: str, paths: list[str], cluster: Cluster) -> None:
    """Two faults may change one object, but not the same values: the second one would save those of the first."""
    taken = [
        saved["path"]
        for record in cluster.records()
        for inverse in record.inverses
        if inverse["mechanism"] == "object"
        for earlier in inverse["changed"]
        if earlier["url"] == url
        for saved in earlier["originals"]
    ]
    for path in paths:
        for other in taken:
            if path.startswith(other) or other.startswith(path):
                raise CannotAct(f"another fault has changed {other} of {url.rpartition('/')[2]}")


class StoreMechanism:
    """Holds a transaction open, or applies statements that others undo; the store itself ends both in time."""

    def prepare(self, injection: StoreInjection, target: Target, token: str, seconds: float) -> Inverse:
        store, database = injection.store, injection.database
        probe = injection.save or ("SELECT 1" if store == "postgresql" else "PING")
        saved = target.query(store, database, probe)
        restore = [statement.replace("{saved}", saved) for statement in injection.restore]
        return {"store": store, "database": database, "restore": restore, "token": token, "seconds": seconds}

    def act(self, injection: StoreInjection, target: Target, inverse: Inverse) -> None:
        pause, token = f"{inverse['seconds']:.0f}", inverse["token"]
        if injection.hold:
            statements = ["BEGIN", *injection.hold, pause, "COMMIT"]
            target.background(injection.store, injection.database, statements, token)
            return
        target.background(injection.store, injection.database, [pause, *inverse["restore"]], token)
        for statement in injection.apply:
            target.query(injection.store, injection.database, statement)

    def undo(self, target: Target, inverse: Inverse) -> None:
        target.end_background(inverse["store"], inverse["token"])
        for statement in inverse["restore"]:
            target.query(inverse["store"], inverse["database"], statement)


class LoadMechanism:
    """Sends customers to the storefront by the load generator."""

    def prepare(self, injection: LoadInjection, target: Target, token: str, seconds: float) -> Inverse:
        return {"token": token, "seconds": seconds}

    def act(self, injection: LoadInjection, target: Target, inverse: Inverse) -> None:
        settings = {
            "RATE": f"{injection.rate:g}",
            "SHAPE": injection.shape,
            "DURATION_SECONDS": f"{inverse['seconds']:.0f}",
            "SEED": inverse["token"],
        }
        if injection.persona:
            target.send_customers({**settings, "THINK_SECONDS": "0.1"}, _CARD_TESTERS)
        else:
            target.send_customers(settings)

    def undo(self, target: Target, inverse: Inverse) -> None:
        target.end_customers(inverse["token"])


MECHANISMS: dict[str, Mechanism] = {
    "failpoint": FailpointMechanism(),
    "patch": PatchMechanism(),
    "object": ObjectMechanism(),
    "store": StoreMechanism(),
    "load": LoadMechanism(),
}
