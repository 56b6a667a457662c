"""Faults of a release on a cluster, by a kubectl that has objects: saved first, undone by any later command."""

import io
import json
import os
import secrets
import socket
import ssl
import subprocess
import time
import urllib.request
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from shop_kit.waiting import wait_until
from shop_lab.incidents import injector, upkeep
from shop_lab.incidents.catalogue import Fault, find
from shop_lab.incidents.cluster import Cluster, url_of
from shop_lab.incidents.commands import collecting
from shop_lab.incidents.targets import CannotAct, NoLaboratory

CPU = "spec/template/spec/containers[checkout]/resources/limits/cpu"
LEVEL = "spec/template/spec/containers[checkout]/env[LOG_LEVEL]/value"
DEPLOYMENT = "/apis/apps/v1/namespaces/shop-lab/deployments/shop-checkout"
LABELS = {"shop/lab": "true", "app.kubernetes.io/instance": "shop"}


def deployment() -> dict[str, Any]:
    container = {
        "name": "checkout",
        "image": "shop/checkout:1.0",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "PORT", "value": "50051"}, {"name": "LOG_LEVEL", "value": "info"}],
        "resources": {"requests": {"cpu": "50m"}},
    }
    pod = {"containers": [container], "securityContext": {"runAsNonRoot": True}}
    owners = [{"manager": "helm"}]
    metadata = {"name": "shop-checkout", "namespace": "shop-lab", "labels": LABELS, "managedFields": owners}
    spec = {"template": {"metadata": {}, "spec": pod}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@dataclass(frozen=True)
class FakeCluster(Cluster):
    """A cluster whose kubectl has objects by their URLs, and a log of its calls. What is `refused` are verbs."""

    stored: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, ...]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    @override
    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        self.calls.append(arguments)
        verb, *rest = arguments
        if verb in self.refused:
            raise CannotAct(f"kubectl {verb}: Error from server (Forbidden)")
        options = dict(text.split("=", 1) for text in rest if "=" in text)
        named = [text for text in rest if not text.startswith("--")]
        result: str = getattr(self, f"do_{verb}")(named, options, stdin)
        return result

    def do_get(self, named: list[str], options: dict[str, str], _stdin: None) -> str:
        if "--selector" in options:
            found = self._select(named[0], options["--selector"])
            items = json.dumps({"items": [self.stored[url] for url in found]})
            return "".join(found) if options["--output"] == "name" else items
        url = named[0] if len(named) == 1 else self._url(*named)
        if url not in self.stored:
            raise CannotAct("kubectl get: Error from server (NotFound)")
        return json.dumps(self.stored[url])

    def do_create(self, _named: list[str], _options: dict[str, str], stdin: str) -> str:
        manifest = json.loads(stdin)
        for found in manifest.get("items", [manifest]):
            created = {**found, "metadata": {**found["metadata"], "namespace": self.namespace}}
            self.stored[url_of(created)] = created
        return ""

    do_apply = do_create

    def do_patch(self, named: list[str], options: dict[str, str], _stdin: None) -> str:
        self.change(self._url(*named), json.loads(options["--patch"]), options["--field-manager"])
        return ""

    def change(self, url: str, operations: list[dict[str, Any]], manager: str) -> None:
        """Apply a JSON patch; who changes more than the list of owners becomes one."""
        apply(self.stored[url], operations)
        owners = self.stored[url]["metadata"]["managedFields"]
        if operations[0]["path"] != "/metadata/managedFields" and {"manager": manager} not in owners:
            owners.append({"manager": manager})

    def do_delete(self, named: list[str], options: dict[str, str], _stdin: None) -> str:
        for url in self._select(named[0], options["--selector"]) if "--selector" in options else [self._url(*named)]:
            self.stored.pop(url, None)
        return ""

    def _url(self, kind: str, name: str) -> str:
        names = (url for url in self.stored if url.endswith(f"/{kind.removesuffix('s')}s/{name}"))
        return next(names, "") if kind != "namespace" else f"/api/v1/namespaces/{name}"

    def _select(self, kinds: str, selector: str) -> list[str]:
        wanted = [part.partition("=") for part in selector.split(",")]
        return [
            url
            for url, found in self.stored.items()
            for labels in [found["metadata"].get("labels", {})]
            if any(f"/{kind}s/" in url for kind in kinds.split(","))
            and all(name in labels and (not sign or labels[name] == value) for name, sign, value in wanted)
        ]

    @property
    def container(self) -> dict[str, Any]:
        found: dict[str, Any] = self.stored[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]
        return found


@pytest.fixture
def cluster() -> FakeCluster:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop-lab", "labels": LABELS}}
    return FakeCluster("shop-lab", "shop", stored={"/api/v1/namespaces/shop-lab": namespace, DEPLOYMENT: deployment()})


def fault(*injections: dict[str, Any]) -> Fault:
    return Fault.model_validate({**find("cpu-checkout").model_dump(), "id": "cpu-limit", "injections": injections})


def change(path: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"mechanism": "object", "target": "deployment/checkout", "set": {path: value}, **more}


def test_two_faults_compose_in_any_order_but_do_not_change_the_same_value(cluster: FakeCluster) -> None:
    before = deepcopy(cluster.stored)
    first, second = (injector.start(fault(change(path, "7")), cluster, 60) for path in (CPU, LEVEL))
    assert cluster.container["resources"]["limits"] == {"cpu": "7"}
    with pytest.raises(CannotAct, match="another fault has changed .*limits of shop-checkout"):
        injector.start(fault(change(CPU, "200m")), cluster, 60)
    assert [found.token for found in cluster.records()] == [first.token, second.token]
    assert replace(cluster, release="other").records() == []
    injector.undo(first, cluster)
    assert [cluster.container["env"][1]["value"], "limits" in cluster.container["resources"]] == ["7", False]
    injector.undo(second, cluster)
    assert cluster.stored == before


def test_the_inverse_is_saved_before_anything_acts_and_nothing_names_the_fault(cluster: FakeCluster) -> None:
    injector.start(fault(change(CPU, "100m")), cluster, 60)
    verbs = [call[0] for call in cluster.calls if call[0] in ("apply", "create", "patch")]
    assert verbs == ["apply", "create", "patch"]
    text = json.dumps([cluster.stored, cluster.calls]).lower().replace("default", "")
    assert [word for word in ("cpu-limit", "fault", "incident", "inject", "chaos") if word in text] == []


@pytest.mark.parametrize("verb", ["create", "patch"])
def test_what_may_not_be_done_is_one_line_and_leaves_nothing(cluster: FakeCluster, verb: str) -> None:
    before = deepcopy(cluster.stored)
    cluster.refused.add(verb)
    with pytest.raises(CannotAct, match=rf"^kubectl {verb}: Error from server \(Forbidden\)$"):
        injector.start(fault(change(LEVEL, "debug")), cluster, 60)
    assert cluster.stored == before


@pytest.mark.parametrize(
    "changes", [{"owner": f"{socket.gethostname()}:999999999"}, {"owner": "", "expires": 0.0}], ids=["killed", "left"]
)
def test_the_next_command_undoes_what_a_killed_one_has_left_and_what_has_expired(
    cluster: FakeCluster, changes: dict[str, Any]
) -> None:
    before = deepcopy(cluster.stored)
    record = injector.start(fault(change(CPU, "100m")), cluster, 60)
    assert injector.restore(cluster) == []  # its owner, this process, lives
    injector.leave(record, cluster)
    assert [injector.restore(cluster), cluster.container["resources"]["limits"]] == [[], {"cpu": "100m"}]
    cluster.save(replace(record, **changes))
    assert [found.token for found in injector.restore(cluster)] == [record.token]
    assert cluster.stored == before


@pytest.mark.parametrize("url", ["/api/v1/namespaces/shop-lab", DEPLOYMENT])
def test_without_the_label_a_shop_is_no_laboratory(cluster: FakeCluster, url: str) -> None:
    cluster.require_laboratory()
    cluster.stored[url]["metadata"]["labels"] = {"app.kubernetes.io/instance": "shop"}
    with pytest.raises(NoLaboratory, match=r"shop/lab=true|lab\.enabled=true"):
        cluster.require_laboratory()


@pytest.mark.parametrize("path", ["spec/replicas/x/y[z]", "spec/[", "spec/template/spec/containers[checkout]/env/x"])
def test_a_path_that_cannot_be_set_is_refused(cluster: FakeCluster, path: str) -> None:
    before = deepcopy(cluster.stored)
    with pytest.raises(CannotAct):
        injector.start(fault(change(path, "1")), cluster, 60)
    assert cluster.stored == before


def test_the_pod_of_the_upkeep_is_restricted_and_may_change_only_what_it_restores(cluster: FakeCluster) -> None:
    injector.start(fault(change(CPU, "100m")), cluster, 60)
    (job,) = (found for found in cluster.stored.values() if found["kind"] == "Job")
    (role,) = (found for found in cluster.stored.values() if found["kind"] == "Role")
    allowed = {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["shop-checkout"]}
    assert role["rules"] == [{**allowed, "verbs": ["get", "patch"]}]
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert job["spec"]["template"]["spec"]["securityContext"] == {"runAsNonRoot": True}
    assert 600 < job["spec"]["activeDeadlineSeconds"] <= 660


def test_the_pod_of_the_upkeep_restores_what_its_secret_says(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = deepcopy(cluster.stored[DEPLOYMENT])
    record = injector.start(fault(change(CPU, "100m"), change(LEVEL, "debug")), cluster, 60)
    record.expires = time.time()
    (tmp_path / "state").write_text(record.dump())
    calls: list[tuple[str, str]] = []

    def call(method: str, url: str, body: Any = None) -> Any:
        calls.append((method, url))
        if method == "PATCH":
            cluster.change(url.partition("?")[0], body, url.partition("=")[2])
        return deepcopy(cluster.stored[DEPLOYMENT])

    monkeypatch.setattr(upkeep, "call", call)
    upkeep.main(str(tmp_path / "state"))
    assert cluster.stored[DEPLOYMENT] == before
    assert calls == [("GET", DEPLOYMENT), ("PATCH", f"{DEPLOYMENT}?fieldManager=upkeep")] * 4


def test_the_upkeep_trusts_authorities_that_lack_what_a_strict_check_requires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context()
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13

    def urlopen(_request: object, **options: Any) -> io.BytesIO:
        assert options["context"] is context
        return io.BytesIO(b"{}")

    (tmp_path / "token").write_text("t")
    monkeypatch.setattr(upkeep, "_ACCOUNT", tmp_path)
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: context if cafile.endswith("ca.crt") else None)
    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    assert upkeep.call("GET", "/") == {}
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a/b", 1),
        ("a/c/d", {"e": 1}),
        ("a", None),
        ("list[x]/value", 2),
        ("list[x]", None),
        ("list[z]/value", 3),
        ("list[z]", {"deep": {"deeper": 1}}),
        ("keys/example.com~1key", "v"),
        ("new[x]/value", 1),
    ],
)
def test_every_change_can_be_undone(path: str, value: Any) -> None:
    document = {"a": {"b": 0}, "list": [{"name": "x", "value": 1}, {"name": "y"}], "keys": {"other": 1}}
    changed = json.loads(json.dumps(document))
    original = upkeep.original(document, path)
    apply(changed, upkeep.change(document, path, value))
    assert changed != document
    apply(changed, upkeep.restoring(changed, [original]))
    assert sorted(json.dumps(changed)) == sorted(json.dumps(document))
    assert upkeep.restoring(changed, [original]) == []


def apply(document: Any, operations: list[dict[str, Any]]) -> None:
    """Apply a JSON patch, as the API does."""
    for operation in operations:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        found = document
        for key in parents:
            found = found[int(key) if isinstance(found, list) else key]
        if operation["op"] == "remove":
            del found[int(last) if isinstance(found, list) else last]
        elif isinstance(found, list):
            found.append(operation["value"]) if last == "-" else found.__setitem__(int(last), operation["value"])
        else:
            found[last] = operation["value"]


class ReconciledCluster(Cluster):
    """A cluster whose reconciliation logs these events."""

    events: ClassVar[list[dict[str, str]]] = []

    @override
    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        if arguments[0] == "logs":
            return "not JSON\n" + "\n".join(map(json.dumps, self.events))
        return json.dumps({"spec": {"template": {"spec": {"containers": [{"env": []}]}}}})


def test_records_that_were_not_read_are_not_taken_for_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ReconciledCluster("shop-lab", "shop")
    monkeypatch.setattr(ReconciledCluster, "events", [{"event": "mismatch", "kind": "X"}, {"event": "reconciled"}])
    assert found.compare() == ["X"]
    monkeypatch.setattr(ReconciledCluster, "events", [{"event": "records not read"}])
    with pytest.raises(CannotAct, match="could not read all records"):
        found.compare()


class ShellCluster(Cluster):
    """A cluster whose pods are this machine: what it executes in them runs here."""

    @override
    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        command = arguments[arguments.index("--") + 1 :]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_release_that_keeps_no_logs_is_refused_before_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        "#!/bin/sh\ncase $* in *loki*) echo not found;; *) echo Forwarding from 127.0.0.1:1; exec sleep 600; esac\n"
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with (
        pytest.raises(CannotAct, match="port 3100 of service/shop-loki: not found"),
        collecting(Cluster("shop-lab", "shop")),
    ):
        pytest.fail("the release was not refused")


async def test_a_command_in_the_background_is_ended_by_its_token_and_nothing_else() -> None:
    cluster, token = ShellCluster("shop-lab", "shop"), secrets.token_hex(8)
    cluster.background("valkey", "", ["600"], token)
    await wait_until(lambda: running(token))
    cluster.end_background("valkey", token)
    await wait_until(lambda: not running(token))


def running(token: str) -> bool:
    found = False
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found |= token.encode() in path.read_bytes()
    return found
