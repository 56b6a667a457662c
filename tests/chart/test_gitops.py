"""The chart without Helm in the cluster: one manifest of a release, Argo CD and Flux, with existing secrets."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/shop"
EXISTING_SECRET = yaml.safe_load((CHART / "ci/existing-secret-values.yaml").read_text())
EXAMPLES = {
    document["kind"]: document
    for file in sorted((CHART / "examples").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_matches_the_schema_of_its_kind(kind: str) -> None:
    schema = json.loads((ROOT / f"tests/chart/schemas/{kind.lower()}.json").read_text())
    jsonschema.validate(EXAMPLES[kind], schema)


def test_the_examples_install_the_chart_with_existing_secrets() -> None:
    helm = EXAMPLES["Application"]["spec"]["source"]["helm"]
    assert helm["valuesObject"] == EXAMPLES["HelmRelease"]["spec"]["values"] == EXISTING_SECRET
    assert EXAMPLES["HelmRelease"]["spec"]["chartRef"]["name"] == EXAMPLES["OCIRepository"]["metadata"]["name"]


def test_with_existing_secrets_each_render_is_the_same_and_has_no_secret(helm: Any) -> None:
    first, second = (helm("render", values=EXISTING_SECRET, name="shop", namespace="shop") for _ in range(2))
    assert first == second
    assert "kind: Secret\n" not in "".join(first.values())


def test_the_documented_secret_has_every_key_that_pods_read(render: Any) -> None:
    documented = re.findall(r"--from-literal=([\w-]+)=", (CHART / "docs/data.md").read_text())
    variables = [
        variable
        for _, pod in render(EXISTING_SECRET).pod_templates()
        for variable in pod["spec"]["containers"][0].get("env", ())
    ]
    read = {variable["valueFrom"]["secretKeyRef"]["key"] for variable in variables if "valueFrom" in variable}
    assert sorted(documented) == sorted(read)


def test_a_release_attaches_the_manifest_of_the_published_chart() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    commands = "\n".join(step.get("run", "") for step in jobs["publish"]["steps"])
    assert 'helm template shop "oci://$CHART"' in commands
    assert "--values charts/shop/ci/existing-secret-values.yaml > shop.yaml" in commands
    assert re.search(r"gh release create .* shop\.yaml$", commands, re.MULTILINE)
