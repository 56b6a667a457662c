"""Every combination of values gives manifests that Kubernetes accepts and that keep the rules for all pods."""

import functools
import json
import re
from typing import Any

import kubernetes_validate
import pytest

CUSTOM_KINDS = {"GRPCRoute", "HTTPRoute", "ServiceMonitor"}


def test_the_chart_lints_without_a_warning(helm: Any, matrix_values: dict[str, Any]) -> None:
    report = helm("lint", values=matrix_values)
    assert [message for message in report["messages"] if message["severity"] >= 2] == []
    assert report["errors"] == []


@pytest.mark.parametrize("version", ["1.30.0", "1.34.0", "1.37.0"])
def test_kubernetes_knows_every_field(render: Any, matrix_values: dict[str, Any], version: str) -> None:
    manifests = render(matrix_values)
    for made in [*manifests.objects, *manifests.hooks]:
        if made["kind"] not in CUSTOM_KINDS:
            validate_once(json.dumps(made), version)


@functools.cache
def validate_once(made: str, version: str) -> None:
    """Most objects are the same for most values."""
    kubernetes_validate.validate(json.loads(made), version, strict=True)


def test_no_object_appears_twice(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    names = [(made["kind"], made["metadata"]["name"]) for made in [*manifests.objects, *manifests.hooks]]
    assert sorted(names) == sorted(set(names))


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def test_pods_keep_pod_security_restricted(render: Any, matrix_values: dict[str, Any]) -> None:
    for name, pod in render(matrix_values).pod_templates():
        spec = pod["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        allowed = {"name", "emptyDir", "configMap", "persistentVolumeClaim", "secret", "projected"}
        assert {key for volume in spec["volumes"] for key in volume} <= allowed, name
        for container in containers_of(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert all("hostPort" not in port for port in container.get("ports", [])), name


def test_the_shops_own_images_run_as_their_user(render: Any, values: dict[str, Any]) -> None:
    pods = dict(render().pod_templates())
    own = [name for name, pod in pods.items() if pod["spec"]["containers"][0]["image"].startswith("docker.io/shop/")]
    assert len(own) == len(values["services"]) + 2  # the pods of two tests
    assert {pods[name]["spec"]["securityContext"]["runAsUser"] for name in own} == {10001}


def test_no_pod_can_talk_to_the_cluster(render: Any, matrix_values: dict[str, Any]) -> None:
    for name, pod in render(matrix_values).pod_templates():
        assert pod["spec"]["automountServiceAccountToken"] is False, name
        assert pod["spec"]["enableServiceLinks"] is False, name


def test_every_part_has_a_service_account_of_its_own(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    used = [
        made["spec"]["template"]["spec"]["serviceAccountName"]
        for made in manifests.objects
        if made["kind"] in {"Deployment", "StatefulSet"}
    ]
    assert sorted(used) == sorted(made["metadata"]["name"] for made in manifests.all("ServiceAccount"))
    assert len(set(used)) == len(used)


def test_every_container_says_what_it_needs(render: Any, matrix_values: dict[str, Any]) -> None:
    for name, pod in render(matrix_values).pod_templates():
        for container in containers_of(pod):
            assert set(container["resources"]["requests"]) >= {"cpu", "memory"}, name
            assert "memory" in container["resources"]["limits"], name


def test_every_volume_that_is_mounted_exists(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    claims = {made["metadata"]["name"]: made["spec"] for made in manifests.all("StatefulSet")}
    for name, pod in manifests.pod_templates():
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in claims.get(name, {}).get("volumeClaimTemplates", [])}
        mounted = {mount["name"] for container in containers_of(pod) for mount in container["volumeMounts"]}
        assert mounted == volumes, name


def test_what_pods_refer_to_is_made_or_given(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    made = {
        (found["metadata"]["name"], key)
        for found in [*manifests.all("Secret"), *manifests.all("ConfigMap"), *manifests.hooks]
        for key in found.get("data", {})
    }
    given = set(re.findall(r"'(?:existingSecret|name)': '([^']+)'", str(matrix_values)))
    for name, pod in manifests.pod_templates():
        for container in containers_of(pod):
            for variable in container.get("env", []):
                reference = variable.get("valueFrom", {}).get("secretKeyRef")
                if reference and reference["name"] not in given:
                    assert (reference["name"], reference["key"]) in made, (name, variable["name"])


def test_selectors_never_hold_what_an_upgrade_changes(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    for made in [*manifests.all("Deployment"), *manifests.all("StatefulSet")]:
        stable = {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
        assert set(made["spec"]["selector"]["matchLabels"]) == stable
        assert made["spec"]["selector"]["matchLabels"].items() <= made["spec"]["template"]["metadata"]["labels"].items()
        for claim in made["spec"].get("volumeClaimTemplates", []):
            assert set(claim["metadata"]["labels"]) == stable


def test_stores_are_not_restarted_by_a_new_version_of_the_chart(render: Any) -> None:
    for made in render().all("StatefulSet"):
        assert not [label for label in made["spec"]["template"]["metadata"]["labels"] if "version" in label]
        assert "helm.sh/chart" not in made["spec"]["template"]["metadata"]["labels"]


def test_two_releases_in_one_namespace_share_no_name(render: Any) -> None:
    values = {"observability": {"enabled": True}}
    first, second = render(values, name="shop"), render(values, name="shop-b")
    names = [
        {(made["kind"], made["metadata"]["name"]) for made in [*manifests.objects, *manifests.hooks]}
        for manifests in (first, second)
    ]
    assert names[0] & names[1] == set()


def test_two_releases_in_one_namespace_select_no_pod_of_each_other(render: Any) -> None:
    first, second = render(name="shop"), render(name="shop-b")
    foreign = [pod["metadata"]["labels"] for _, pod in second.pod_templates()]
    for made in [*first.all("Service"), *first.all("NetworkPolicy"), *first.all("Deployment")]:
        spec = made["spec"]
        selector = spec.get("selector", spec.get("podSelector"))
        labels = selector.get("matchLabels", selector)
        assert not [pod for pod in foreign if labels.items() <= pod.items()], made["metadata"]["name"]
