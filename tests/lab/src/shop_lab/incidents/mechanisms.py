"""How faults act: each mechanism returns its inverse, which is saved, before it acts."""

import asyncio
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from chassis.errors import DomainError, InvalidArgument, Unavailable
from chassis.rpc import client
from shop_cli.local.workspace import root
from shop_internal.failpoints_pb2 import Failpoint, SetFailpointRequest
from shop_internal.failpoints_pb2_grpc import FailpointsStub
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
FINDER = Path(__file__).with_name("finder.py")
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


def _cluster(target: Target) -> Cluster:
    if not isinstance(target, Cluster):
        raise CannotAct("only a shop on a cluster has stores, and objects and modules that can be changed")
    return target


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
        cluster, file = _cluster(target), f"{module_of(injection)}.py"
        patched(injection)
        namespace, name = f"/namespaces/{cluster.namespace}", cluster.name(injection.service)
        modules = f"/api/v1{namespace}/configmaps/{name}-modules"
        if cluster.get(modules) is not None:
            raise CannotAct(f"another fault has replaced a module of {injection.service}")
        # With a fraction, and so never the time of the restart that brings the fault.
        annotations = {"kubectl.kubernetes.io/restartedAt": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
        restart = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        patches = {modules: {"data": {file: None}}, f"/apis/apps/v1{namespace}/deployments/{name}": restart}
        changes = [{"url": url, "type": "merge", "patch": patch} for url, patch in patches.items()]
        return {"service": injection.service, "modules": modules, "file": file, "changes": changes}

    def act(self, injection: PatchInjection, target: Target, inverse: Inverse) -> None:
        cluster, name = _cluster(target), inverse["modules"].rpartition("/")[2]
        data = {FINDER_NAME: FINDER.read_text(), inverse["file"]: patched(injection)}
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
        cluster.restart(injection.service)

    def undo(self, target: Target, inverse: Inverse) -> None:
        cluster = _cluster(target)
        if cluster.get(inverse["modules"]) is not None:
            cluster.delete(inverse["modules"])
            cluster.restart(inverse["service"])


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
        url = url_of(found)
        if url in {taken for record in cluster.records() for taken in record.changed_objects}:
            raise CannotAct(f"another fault has changed {injection.target}")
        if cluster.patch(_change(injection, url), "--dry-run=server")["spec"] == found["spec"]:
            raise CannotAct(f"{injection.target} is already as the fault would have it")
        # Helm changes no fields of others, and a change of values makes this their owner: so owners are changed alone.
        originals = {"/spec": found["spec"], "/metadata/managedFields": found["metadata"]["managedFields"]}
        patches = [[{"op": "replace", "path": path, "value": value}] for path, value in originals.items()]
        return {"changes": [{"url": url, "type": "json", "patch": patch} for patch in patches]}

    def act(self, injection: ObjectInjection, target: Target, inverse: Inverse) -> None:
        _cluster(target).patch(_change(injection, inverse["changes"][0]["url"]))

    def undo(self, target: Target, inverse: Inverse) -> None:
        cluster = _cluster(target)
        for change in inverse["changes"]:
            if cluster.get(change["url"]) is not None:
                cluster.patch(change)


def _change(injection: ObjectInjection, url: str) -> dict[str, Any]:
    return {"url": url, "type": "strategic", "patch": injection.patch}


class StoreMechanism:
    """Holds a transaction open, or applies statements that others undo; the store itself ends both in time."""

    def prepare(self, injection: StoreInjection, target: Target, token: str, seconds: float) -> Inverse:
        store, database = injection.store, injection.database
        probe = injection.save or ("SELECT 1" if store == "postgresql" else "PING")
        saved = _cluster(target).query(store, database, probe)
        restore = [statement.replace("{saved}", saved) for statement in injection.restore]
        return {"store": store, "database": database, "restore": restore, "token": token, "seconds": seconds}

    def act(self, injection: StoreInjection, target: Target, inverse: Inverse) -> None:
        cluster, pause, token = _cluster(target), f"{inverse['seconds']:.0f}", inverse["token"]
        statements = ["BEGIN", *injection.hold, pause, "COMMIT"] if injection.hold else [pause, *inverse["restore"]]
        cluster.background(injection.store, injection.database, statements, token)
        for statement in injection.apply:
            cluster.query(injection.store, injection.database, statement)

    def undo(self, target: Target, inverse: Inverse) -> None:
        cluster = _cluster(target)
        cluster.end_background(inverse["store"], inverse["token"])
        for statement in inverse["restore"]:
            cluster.query(inverse["store"], inverse["database"], statement)


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
