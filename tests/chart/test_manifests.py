"""Every values file of the matrix renders manifests that Kubernetes accepts and that follow the rules for all pods."""

import functools
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
from kubernetes_validate import utils

UNKNOWN_KINDS = {"AuthorizationPolicy", "GRPCRoute", "HTTPRoute", "PeerAuthentication"}
CUSTOM_SCHEMAS = {
    kind: json.loads((Path(__file__).with_name("schemas") / f"{kind.lower()}.json").read_text())
    for kind in ("Certificate", "Cluster", "Database", "PrometheusRule", "ScaledObject", "ServiceMonitor")
}


# Reading the files of schemas again for each object would take six times as long as all the rest.
for function in ("schema_contents", "all_versions"):
    setattr(utils, function, functools.cache(getattr(utils, function)))


@functools.cache
def validate_once(serialized: str, version: str) -> None:
    """Validate an object; most are the same for most values."""
    found = json.loads(serialized)
    if schema := CUSTOM_SCHEMAS.get(found["kind"]):
        jsonschema.validate(found, schema)
    elif found["kind"] not in UNKNOWN_KINDS:
        kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("version", ["1.30.0", "1.37.0"])
def test_manifests_match_the_schemas_of_kubernetes_and_operators(
    render: Any, matrix_values: dict[str, Any], version: str
) -> None:
    manifests = render(matrix_values)
    for found in [*manifests.objects, *manifests.hooks]:
        validate_once(json.dumps(found), version)


# By default, the kubelet keeps five files of 10 MiB.
LOGS_MEBIBYTES = 50


def mebibytes(quantity: str) -> float:
    return float(quantity[:-2]) * {"Mi": 1, "Gi": 1024}[quantity[-2:]]


def cores(quantity: str) -> float:
    return float(quantity.removesuffix("m")) / (1000 if quantity.endswith("m") else 1)


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def keyed_lists(pod: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the lists of a pod that server-side apply merges by key, with their keys."""
    yield "containers", [container["name"] for container in containers_of(pod)]
    yield "volumes", [volume["name"] for volume in pod["spec"].get("volumes", [])]
    for container in containers_of(pod):
        yield "env", [variable["name"] for variable in container.get("env", [])]
        yield "volumeMounts", [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        yield "ports", [f"{port['containerPort']}/{port.get('protocol', 'TCP')}" for port in container.get("ports", [])]
        yield "port names", [port["name"] for port in container.get("ports", [])]


def test_no_object_and_no_key_in_a_list_of_a_pod_appears_twice(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    objects = [(found["kind"], found["metadata"]["name"]) for found in [*manifests.objects, *manifests.hooks]]
    assert len(set(objects)) == len(objects)
    for name, pod in manifests.pod_templates():
        for field, keys in keyed_lists(pod):
            assert [key for key, count in Counter(keys).items() if count > 1] == [], (name, field)


SECURITY = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
VOLUMES = {"name", "emptyDir", "configMap", "persistentVolumeClaim", "secret", "projected"}


def test_pods_conform_to_pod_security_restricted_and_have_no_credentials_of_the_cluster(
    render: Any, matrix_values: dict[str, Any]
) -> None:
    for name, pod in render(matrix_values).pod_templates():
        spec, context = pod["spec"], pod["spec"]["securityContext"]
        assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert (context["runAsNonRoot"], context["seccompProfile"]) == (True, {"type": "RuntimeDefault"}), name
        assert context.get("runAsUser", 1) > 0, name
        assert {key for volume in spec["volumes"] for key in volume} <= VOLUMES, name
        for container in containers_of(pod):
            assert container["securityContext"] == SECURITY, name
            assert all("hostPort" not in port for port in container.get("ports", [])), name
            # Without a CPU limit, which throttles on an idle node. Some nodes report no disk space to request.
            assert container["resources"]["requests"].keys() == {"cpu", "memory", "ephemeral-storage"}, name
            assert container["resources"]["limits"].keys() == {"memory", "ephemeral-storage"}, name


def test_every_component_has_its_own_service_account(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    twice = re.compile("test-health|-v2$")  # other pods have their accounts, too
    used = [pod["spec"]["serviceAccountName"] for name, pod in manifests.pod_templates() if not twice.search(name)]
    found = {found["metadata"]["name"] for found in manifests.all("ServiceAccount")}
    assert sorted(used) == sorted(found - {"shop-lab"})  # whose pods a command starts
    assert len(set(used)) == len(used)


def test_the_limit_of_disk_space_leaves_room_for_logs_beside_full_volumes(
    render: Any, matrix_values: dict[str, Any]
) -> None:
    for name, pod in render(matrix_values).pod_templates():
        disks = [volume["emptyDir"] for volume in pod["spec"]["volumes"] if "emptyDir" in volume]
        volumes = sum(mebibytes(disk["sizeLimit"]) for disk in disks if "medium" not in disk)
        limit = sum(mebibytes(found["resources"]["limits"]["ephemeral-storage"]) for found in pod["spec"]["containers"])
        assert volumes + LOGS_MEBIBYTES * len(pod["spec"]["containers"]) <= limit, name


def test_everything_with_observability_fits_a_node_of_four_gibibytes(render: Any, values: dict[str, Any]) -> None:
    manifests = render({"observability": {"enabled": True}})
    services = [manifests.container(name)["resources"]["requests"] for name in values["services"]]
    assert sum(mebibytes(request["memory"]) for request in services) <= 60 * len(services)
    assert sum(cores(request["cpu"]) for request in services) <= 0.06 * len(services)
    workloads = [*manifests.all("Deployment"), *manifests.all("StatefulSet")]
    resources = [found["spec"]["template"]["spec"]["containers"][0]["resources"] for found in workloads]
    assert sum(mebibytes(found["requests"]["memory"]) for found in resources) <= 1.5 * 1024
    assert sum(mebibytes(found["limits"]["memory"]) for found in resources) <= 3.75 * 1024
    assert sum(cores(found["requests"]["cpu"]) for found in resources) <= 1.5
    # Some nodes report no disk space. Without a request, the limit would be one.
    assert {found["requests"]["ephemeral-storage"] for found in resources} == {"0"}


def test_every_mounted_volume_exists(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    claims = {found["metadata"]["name"]: found["spec"] for found in manifests.all("StatefulSet")}
    for name, pod in manifests.pod_templates():
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in claims.get(name, {}).get("volumeClaimTemplates", [])}
        mounted = {mount["name"] for container in containers_of(pod) for mount in container["volumeMounts"]}
        assert mounted == volumes, name


def test_every_referenced_secret_key_is_rendered_or_in_the_values(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    rendered = {(found["metadata"]["name"], key) for found in manifests.all("Secret") for key in found["data"]}
    in_values = set(re.findall(r"'(?:existingSecret|name)': '([^']+)'", str(matrix_values)))
    for name, pod in manifests.pod_templates():
        for container in containers_of(pod):
            for variable in container.get("env", []):
                reference = variable.get("valueFrom", {}).get("secretKeyRef")
                if reference and reference["name"] not in in_values:
                    assert (reference["name"], reference["key"]) in rendered, (name, variable["name"])


def test_selectors_contain_nothing_that_an_upgrade_changes(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    for found in [*manifests.all("Deployment"), *manifests.all("StatefulSet")]:
        stable = {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
        selector = dict(found["spec"]["selector"]["matchLabels"])
        # A version of a service is one that the values name, not the chart's.
        assert found["metadata"]["name"].endswith(selector.pop("app.kubernetes.io/version", ""))
        assert set(selector) == stable
        assert selector.items() <= found["spec"]["template"]["metadata"]["labels"].items()
        for claim in found["spec"].get("volumeClaimTemplates", []):
            assert set(claim["metadata"]["labels"]) == stable


def test_a_new_chart_version_does_not_restart_the_stores(render: Any) -> None:
    for found in render().all("StatefulSet"):
        assert not [label for label in found["spec"]["template"]["metadata"]["labels"] if "version" in label]
        assert "helm.sh/chart" not in found["spec"]["template"]["metadata"]["labels"]


def test_the_grace_period_covers_the_whole_shutdown(render: Any, matrix_values: dict[str, Any]) -> None:
    for name, pod in render(matrix_values).pod_templates():
        container = pod["spec"]["containers"][0]
        variables = {variable["name"]: variable.get("value") for variable in container.get("env", [])}
        if "GRACE_SECONDS" in variables:
            after_sigterm = float(variables["DRAIN_SECONDS"]) + float(variables["GRACE_SECONDS"])
            before_sigterm = container["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert pod["spec"]["terminationGracePeriodSeconds"] > before_sigterm + after_sigterm, name


def test_openshift_chooses_the_ids_of_every_pod(render: Any) -> None:
    everything = {part: {"enabled": True} for part in ("load", "tls", "observability")}
    pods = list(render({"fixedIds": False, **everything}).pod_templates())
    assert len(pods) > 20
    for name, pod in pods:
        contexts = [pod["spec"]["securityContext"], *(each["securityContext"] for each in containers_of(pod))]
        ids = {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"}
        assert not [context for context in contexts if ids & context.keys()], name


DIGEST = "sha256:" + "0123456789abcdef" * 4
OWN = "not-published.invalid/shop/"


def test_images_run_as_their_user_and_group(render: Any, values: dict[str, Any]) -> None:
    pods = [pod["spec"] for _, pod in render({"load": {"enabled": True}}).pod_templates()]
    own = [pod for pod in pods if pod["containers"][0]["image"].startswith(OWN)]
    assert len(own) == len(values["services"]) + 4  # the pods of two tests, of the reconciliation and of customers
    for pod in pods:
        ids = {pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")}
        assert ids == {10001 if pod in own else 999}


def third_party_images(manifests: Any) -> list[str]:
    images = {pod["spec"]["containers"][0]["image"] for _, pod in manifests.pod_templates()}
    return [image for image in images if not image.startswith(OWN)]


def test_third_party_images_have_exact_tags_and_digests_unless_public_sources_do_not_agree_on_one(render: Any) -> None:
    images = third_party_images(render({"observability": {"enabled": True, "alertmanager": {"enabled": True}}}))
    assert len(images) == 8
    for image in images:
        release = r"\d+\.\d+" if "/postgres:" in image else r"v?\d+\.\d+\.\d+"
        assert re.fullmatch(rf"docker\.io/[a-z/-]+:{release}(-[a-z]+)?(@sha256:[0-9a-f]{{64}})?", image)
    without = {image.rpartition(":")[0] for image in images if "@" not in image}
    assert without == {"docker.io/valkey/valkey", "docker.io/grafana/grafana"}


def test_the_tag_of_a_third_party_image_may_carry_its_digest(render: Any) -> None:
    pinned = {"image": {"tag": f"1.2.3@{DIGEST}"}}
    components = dict.fromkeys(("collector", "jaeger", "prometheus", "loki", "alertmanager", "grafana"), pinned)
    manifests = render({"postgresql": pinned, "valkey": pinned, "observability": {"enabled": True, **components}})
    assert [image for image in third_party_images(manifests) if not re.search(rf":[^:@/]+@{DIGEST}$", image)] == []
