"""The chart without Helm in the cluster: one manifest of a release, Argo CD and Flux, with existing secrets."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

Object = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/shop"
EXISTING_SECRET = yaml.safe_load((CHART / "ci/existing-secret-values.yaml").read_text())
EXAMPLES = {
    document["kind"]: document
    for file in sorted((CHART / "examples").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
}
SHARED_SCHEMAS = json.loads((ROOT / "tests/chart/schemas/meshes.json").read_text())


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_matches_the_schema_of_its_kind(kind: str) -> None:
    example = EXAMPLES[kind]
    if kind == "Service":
        kubernetes_validate.validate(example, "1.34.0", strict=True)
        return
    schema = SHARED_SCHEMAS.get(f"{example['apiVersion']} {kind}")
    file = ROOT / f"tests/chart/schemas/{kind.lower()}.json"
    jsonschema.validate(example, schema or json.loads(file.read_text()))


def test_rollouts_by_others_fit_what_the_chart_renders(render: Any) -> None:
    flagger, rollout = EXAMPLES["Canary"]["spec"], EXAMPLES["Rollout"]["spec"]
    manifests = render({"mesh": "sidecar", "services": {"recommendation": {"versions": {"v1": {}}}}})
    target = manifests.one("Deployment", flagger["targetRef"]["name"])["spec"]["selector"]["matchLabels"]
    assert "app.kubernetes.io/version" in target
    assert manifests.has("Service", flagger["service"]["gatewayRefs"][0]["name"])
    assert manifests.all("GRPCRoute") == []
    pods = render().one("Deployment", rollout["workloadRef"]["name"])["spec"]["template"]["metadata"]["labels"]
    assert pods.items() >= EXAMPLES["Service"]["spec"]["selector"].items()


def test_the_examples_install_the_chart_with_existing_secrets_and_without_tests() -> None:
    helm = EXAMPLES["Application"]["spec"]["source"]["helm"]
    assert helm["valuesObject"] == EXAMPLES["HelmRelease"]["spec"]["values"] == EXISTING_SECRET
    assert helm["skipTests"] is True
    assert "test" not in EXAMPLES["HelmRelease"]["spec"]
    assert EXAMPLES["HelmRelease"]["spec"]["chartRef"]["name"] == EXAMPLES["OCIRepository"]["metadata"]["name"]


@pytest.mark.parametrize("generated", [{"shop/templates/authority.yaml", "shop/templates/secret.yaml"}, set()])
def test_nothing_but_generated_secrets_is_random(helm: Any, generated: set[str]) -> None:
    grafana = {"observability": {"enabled": True, "grafana": {"existingSecret": "" if generated else "shop-keys"}}}
    tls = {"tls": {"enabled": True, "issuer": "authority" if generated else "existing"}}
    values = {**({} if generated else EXISTING_SECRET), **grafana, **tls}
    first, second = (helm("render", values=values, name="shop", namespace="shop") for _ in range(2))
    assert {path for path, text in first.items() if "kind: Secret\n" in text} == generated
    assert {path for path in first.keys() | second.keys() if first[path] != second[path]} == generated


def test_only_tests_are_hooks(render: Any, matrix_values: Object) -> None:
    hooks = [found["metadata"]["annotations"] for found in render(matrix_values).hooks]
    assert {(hook["helm.sh/hook"], hook["helm.sh/hook-delete-policy"]) for hook in hooks} <= {
        ("test", "before-hook-creation")
    }


def wave(found: Object) -> int:
    return int(found["metadata"].get("annotations", {}).get("argocd.argoproj.io/sync-wave", 0))


def needs(pod: Object) -> Iterator[tuple[str, str]]:
    """Yield kind and name of what a pod does not start without."""
    yield "ServiceAccount", pod["spec"]["serviceAccountName"]
    for volume in pod["spec"]["volumes"]:
        for kind, key, name in (
            ("ConfigMap", "configMap", "name"),
            ("Secret", "secret", "secretName"),
            ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
        ):
            if key in volume:
                yield kind, volume[key][name]


def test_no_wave_waits_for_a_later_one(render: Any, matrix_values: Object) -> None:
    manifests = render(matrix_values)
    waves = {(found["kind"], found["metadata"]["name"]): wave(found) for found in manifests.objects}
    for found in [*manifests.all("Deployment"), *manifests.all("StatefulSet"), *manifests.all("Job")]:
        for kind, name in needs(found["spec"]["template"]):
            assert waves.get((kind, name), 0) <= wave(found), (found["metadata"]["name"], name)
            # A claim may be pending until its pod is there.
            assert kind != "PersistentVolumeClaim" or waves[kind, name] == wave(found)


def test_stores_services_and_what_depends_on_them_follow_in_waves(render: Any) -> None:
    manifests = render(
        {
            "services": {
                "storefront": {"url": "https://shop.example.com", "env": {"TRUSTED_PROXIES": "10.0.0.0/16"}},
                "cart": {"autoscaling": {"enabled": True}},
            },
            "gateway": {"enabled": True, "parentRefs": [{"name": "public"}], "grpcHostnames": ["grpc.example.com"]},
            "ingress": {"enabled": True, "annotations": {"example.com/own": "x"}},
            "load": {"enabled": True},
            "observability": {"enabled": True},
        }
    )
    found = {(found["kind"], found["metadata"]["name"]): wave(found) for found in manifests.objects if wave(found)}
    last = dict.fromkeys(("HTTPRoute", "GRPCRoute", "Ingress", "HorizontalPodAutoscaler", "CronJob"), 3)
    expected = {"StatefulSet": 1, "Deployment": 2, **last}
    later = {f"shop-{name}" for name in ("prometheus", "jaeger", "loki", "grafana", "otel-collector", "load-generator")}
    assert found == {(kind, name): 3 if name in later else expected[kind] for kind, name in found}
    assert {kind for kind, _ in found} == expected.keys()
    (route,) = manifests.all("Ingress")
    assert route["metadata"]["annotations"]["example.com/own"] == "x"


def test_the_documented_secret_has_every_key_that_pods_read(render: Any) -> None:
    documented = re.findall(r"--from-literal=([\w-]+)=", (CHART / "docs/data.md").read_text())
    variables = [
        variable
        for _, pod in render(EXISTING_SECRET).pod_templates()
        for variable in pod["spec"]["containers"][0].get("env", ())
    ]
    read = {variable["valueFrom"]["secretKeyRef"]["key"] for variable in variables if "valueFrom" in variable}
    assert sorted(documented) == sorted(read)
