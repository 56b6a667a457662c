"""Faults of a release on a cluster, by a kubectl that has its objects: saved first, undone by any later command."""

import io
import json
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from shop_cli.local.workspace import root
from shop_lab.incidents import injector, upkeep
from shop_lab.incidents.catalogue import Fault, ObjectInjection, find, load_all
from shop_lab.incidents.cluster import Cluster, url_of
from shop_lab.incidents.targets import CannotAct, CannotRestore, NoLaboratory

FAULTS = load_all()
CHANGING = [fault for fault in FAULTS.values() for found in fault.injections if isinstance(found, ObjectInjection)]
CHECKOUT, AD = (f"/apis/apps/v1/namespaces/shop/deployments/shop-{name}" for name in ("checkout", "ad"))
MODULES = "/api/v1/namespaces/shop/configmaps/shop-ad-modules"
STALE = "--- a/ad_service/service.py\n+++ b/ad_service/service.py\n@@ -1,1 +1,4 @@\n"


@pytest.fixture(scope="module")
def release() -> dict[str, Any]:
    """The objects of a release for incidents, by their URLs."""
    values = yaml.safe_load((root() / "tests/lab/e2e/incident-values.yaml").read_text())
    values["observability"]["prometheusRule"] = {"enabled": True}
    command = (sys.executable, root() / "tests/chart/helm.py", root() / "charts/shop")
    request = json.dumps(["render", {"values": values, "name": "shop", "namespace": "shop"}])
    rendered = subprocess.run(command, input=f"{request}\n", capture_output=True, text=True, check=True).stdout
    texts = [text for path, text in json.loads(rendered)["result"].items() if path.endswith(".yaml")]
    namespace = {"kind": "Namespace", "metadata": {"name": "shop", "labels": {"shop/lab": "true"}}}
    objects = {"/api/v1/namespaces/shop": namespace}
    for found in (loaded for text in texts for loaded in yaml.load_all(text, yaml.CSafeLoader) if loaded):
        found["metadata"] |= {"namespace": "shop", "managedFields": [{"manager": "helm"}]}
        objects[url_of(found)] = found
    return objects


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_alerts_are_of_rules_and_objectives_that_exist(fault: Fault, release: dict[str, Any]) -> None:
    found = release["/apis/monitoring.coreos.com/v1/namespaces/shop/prometheusrules/shop-rules"]
    rules = [rule for group in found["spec"]["groups"] for rule in group["rules"]]
    names = {rule["alert"] for rule in rules if "alert" in rule}
    slos = {rule["labels"]["slo"] for rule in rules if "slo" in rule.get("labels", {})}
    expected = fault.expected
    for alert in filter(None, (expected.first, expected.page, *expected.may_fire, *expected.must_not_fire)):
        name, _, subject = alert.rstrip(")").partition("(")
        assert name in names, alert
        assert name != "ErrorBudgetBurn" or subject in slos, alert
    assert expected.within <= fault.seconds or not expected.first


def merge(document: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Merge a patch as Kubernetes does: elements of lists by their names, which must exist; null removes a field."""
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict):
            merge(document.setdefault(key, {}), value)
        elif isinstance(value, list) and value:
            elements = {element["name"]: element for element in document[key]}
            for element in value:
                merge(elements[element["name"]], element)
        else:
            document[key] = value


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
        """Change an object; who changes its values becomes an owner of them."""
        url, patch = self._url(*named), json.loads(options["--patch"])
        before, changed = self.stored[url], deepcopy(self.stored[url])
        if options["--type"] == "json":
            (operation,) = patch
            *parents, last = operation["path"].split("/")[1:]
            parent = changed[parents[0]] if parents else changed
            parent[last] = operation["value"]
        else:
            merge(changed, patch)
        if changed.get("spec") != before.get("spec"):
            changed["metadata"]["managedFields"].append({"manager": options["--field-manager"]})
        if "--dry-run" not in options:
            self.stored[url] = changed
        return json.dumps(changed)

    def do_delete(self, named: list[str], options: dict[str, str], _stdin: None) -> str:
        for url in self._select(named[0], options["--selector"]) if "--selector" in options else [self._url(*named)]:
            self.stored.pop(url, None)
        return ""

    def do_rollout(self, *_: Any) -> str:
        return ""

    def _url(self, kind: str, name: str) -> str:
        if kind == "namespace":
            return f"/api/v1/namespaces/{name}"
        plural = kind if kind.endswith("s") else f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
        return next((url for url in self.stored if url.endswith(f"/{plural}/{name}")), "")

    def _select(self, kinds: str, selector: str) -> list[str]:
        wanted = [part.partition("=") for part in selector.split(",")]
        return [
            url
            for url, found in self.stored.items()
            for labels in [found["metadata"].get("labels", {})]
            if any(f"/{kind}s/" in url for kind in kinds.split(","))
            and all(name in labels and (not sign or labels[name] == value) for name, sign, value in wanted)
        ]


@pytest.fixture
def cluster(release: dict[str, Any]) -> FakeCluster:
    return FakeCluster("shop", "shop", stored=deepcopy(release))


def fault(*injections: Any) -> Fault:
    return Fault.model_validate({**find("cpu-checkout").model_dump(), "id": "cpu-limit", "injections": injections})


CPU, PATCH = (FAULTS[name].injections[0] for name in ("cpu-checkout", "ad-category"))
LOAD = {"mechanism": "load", "rate": 1}


@pytest.mark.parametrize("changing", CHANGING, ids=[found.id for found in CHANGING])
def test_an_object_is_changed_once_and_changed_back(cluster: FakeCluster, changing: Fault) -> None:
    before = deepcopy(cluster.stored)
    (injection,) = (found for found in changing.injections if isinstance(found, ObjectInjection))
    changed = fault(injection.model_copy(update={"after": 0}))
    record = injector.start(changed, cluster, 60)
    (url,) = record.changed_objects
    assert cluster.stored[url]["spec"] != before[url]["spec"]
    assert replace(cluster, release="other").records() == []
    with pytest.raises(CannotAct, match=f"another fault has changed {injection.target}"):
        injector.start(changed, cluster, 60)
    cluster.forget(record)
    with pytest.raises(CannotAct, match="is already as the fault would have it"):
        injector.start(changed, cluster, 60)
    injector.undo(record, cluster)
    assert cluster.stored == before
    del cluster.stored[url]
    injector.undo(record, cluster)


def test_the_inverse_is_saved_before_anything_acts_and_nothing_names_the_fault(cluster: FakeCluster) -> None:
    before = set(cluster.stored)
    injector.start(fault(CPU), cluster, 60)
    acting = [call[0] for call in cluster.calls if call[0] != "get" and "--dry-run=server" not in call]
    assert acting == ["apply", "create", "patch"]
    created = {url: found for url, found in cluster.stored.items() if url not in before}
    text = json.dumps([created, cluster.calls]).lower().replace("default", "")
    assert [word for word in ("cpu-limit", "fault", "incident", "inject", "chaos") if word in text] == []


@pytest.mark.parametrize("verb", ["create", "patch"])
def test_what_may_not_be_done_is_one_line_and_leaves_nothing(cluster: FakeCluster, verb: str) -> None:
    before = deepcopy(cluster.stored)
    cluster.refused.add(verb)
    with pytest.raises(CannotAct, match=rf"^kubectl {verb}: Error from server \(Forbidden\)$"):
        injector.start(fault(CPU), cluster, 60)
    assert cluster.stored == before


def test_what_cannot_be_undone_is_reported_after_all_else_was(cluster: FakeCluster) -> None:
    changed, _customers = (injector.start(fault(injection), cluster, 60) for injection in (CPU, LOAD))
    cluster.refused.add("patch")
    with pytest.raises(CannotRestore, match="Forbidden"):
        injector.restore(cluster, everything=True)
    assert [found.token for found in cluster.records()] == [changed.token]


@pytest.mark.parametrize(
    "changes", [{"owner": f"{socket.gethostname()}:999999999"}, {"owner": "", "expires": 0.0}], ids=["killed", "left"]
)
def test_the_next_command_undoes_what_a_killed_one_has_left_and_what_has_expired(
    cluster: FakeCluster, changes: dict[str, Any]
) -> None:
    before = deepcopy(cluster.stored)
    record = injector.start(fault(CPU, LOAD), cluster, 60)
    assert injector.restore(cluster) == []  # its owner, this process, lives
    injector.leave(record, cluster)
    assert injector.restore(cluster) == []
    cluster.save(replace(record, **changes))
    assert [found.token for found in injector.restore(cluster)] == [record.token]
    assert cluster.stored == before


@pytest.mark.parametrize("kind", ["Namespace", "Deployment"])
def test_without_the_label_a_shop_is_no_laboratory(cluster: FakeCluster, kind: str) -> None:
    cluster.require_laboratory()
    for found in cluster.stored.values():
        if found["kind"] == kind:
            del found["metadata"]["labels"]["shop/lab"]
    with pytest.raises(NoLaboratory, match=r"shop/lab=true|lab\.enabled=true"):
        cluster.require_laboratory()


def test_the_pod_of_the_upkeep_is_restricted_and_may_change_only_what_it_restores(cluster: FakeCluster) -> None:
    record = injector.start(fault(CPU), cluster, 60)
    created = {found["kind"]: found for url, found in cluster.stored.items() if url.endswith(record.token)}
    allowed = {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["shop-checkout"]}
    assert created["Role"]["rules"] == [{**allowed, "verbs": ["patch"]}]
    pod = created["Job"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert 600 < created["Job"]["spec"]["activeDeadlineSeconds"] <= 660


def test_the_pod_of_the_upkeep_restores_what_its_secret_says(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = deepcopy(cluster.stored[CHECKOUT])
    record = injector.start(fault(CPU, PATCH), cluster, 60)
    record.expires = time.time()
    for name, text in {"state": record.dump(), "token": "t"}.items():
        (tmp_path / name).write_text(text)
    context = ssl.create_default_context()
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    gone = urllib.error.HTTPError("", 404, "the ConfigMap is gone", Message(), None)
    answers: list[Exception | None] = [OSError("the API restarts"), gone, None, None, None]

    def urlopen(request: urllib.request.Request, **options: Any) -> io.BytesIO:
        assert options["context"] is context
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert not context.verify_flags & ssl.VERIFY_X509_STRICT
        assert isinstance(request.data, bytes)
        if error := answers.pop(0):
            raise error
        url, _, manager = request.full_url.removeprefix("https://kubernetes.default.svc").partition("?fieldManager=")
        kind = request.headers["Content-type"].removeprefix("application/").removesuffix("-patch+json")
        change = {"url": url, "type": kind, "patch": json.loads(request.data)}
        assert (request.method, manager) == ("PATCH", upkeep.MANAGER)
        return io.BytesIO(json.dumps(cluster.patch(change)).encode())

    monkeypatch.setattr(upkeep, "_ACCOUNT", tmp_path)
    monkeypatch.setattr(upkeep, "_RETRY_SECONDS", 0)
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: context if cafile.endswith("ca.crt") else None)
    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    upkeep.main(str(tmp_path / "state"))
    assert answers == []
    assert cluster.stored[CHECKOUT] == before
    assert "restartedAt" in json.dumps(cluster.stored[AD])


def test_a_module_is_replaced_once_and_restored(cluster: FakeCluster) -> None:
    before = deepcopy(cluster.stored)
    record = injector.start(fault(PATCH), cluster, 60)
    assert sorted(cluster.stored[MODULES]["data"]) == ["ad_service.domain.py", "sitecustomize.py"]
    assert ("rollout", "restart", "deployment/shop-ad") in cluster.calls
    with pytest.raises(CannotAct, match="another fault has replaced a module of ad"):
        injector.start(fault(PATCH), cluster, 60)
    injector.undo(record, cluster)
    assert cluster.stored == before


@pytest.mark.parametrize(
    ("diff", "message"),
    [
        ("+++ b/ad_service/none.py", "there is no module ad_service/none.py to patch"),
        (STALE, "^the patch does not apply to ad_service/service.py: [^\n]+$"),
        ("x", "a patch changes one module"),
    ],
)
def test_a_patch_that_does_not_apply_is_refused(cluster: FakeCluster, diff: str, message: str) -> None:
    before = deepcopy(cluster.stored)
    with pytest.raises(CannotAct, match=message):
        injector.start(fault({"mechanism": "patch", "service": "ad", "diff": diff}), cluster, 60)
    assert cluster.stored == before
