"""The shop as a part of an umbrella chart: its condition, several shops in one release, what a parent leaves out."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "shop"
INSTANCE = "app.kubernetes.io/instance"
SHOPS = {"shop": "mall", "eu": "mall-eu", "us": "usa"}
NO_ADS = {"ad": {"enabled": False}, "storefront": {"calls": {"ad": []}}}
VALUES = {
    "global": {"imageRegistry": "registry.example.com"},
    "eu": {
        "tls": {"enabled": True},
        "services": NO_ADS | {"employee-api": {"enabled": False}},
        "slos": {"get-ads": {"enabled": False}},
    },
    "us": {
        "fullnameOverride": "usa",
        "nameOverride": "ignored",
        "observability": {"enabled": True},
        "tls": {"enabled": True},
    },
}


@pytest.fixture(scope="module")
def umbrella(tmp_path_factory: pytest.TempPathFactory, render_chart: Any) -> Callable[[dict[str, Any]], Any]:
    """Render an umbrella chart of three shops, which has its own file of values."""
    folder = tmp_path_factory.mktemp("umbrella")
    (folder / "charts").mkdir()
    (folder / "charts" / "shop").symlink_to(CHART)
    shops = [
        {"name": "shop", "version": "*", "condition": f"{name}.enabled", **({"alias": name} if name != "shop" else {})}
        for name in SHOPS
    ]
    chart = {"apiVersion": "v2", "name": "mall", "version": "1.0.0", "dependencies": shops}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(chart))
    (folder / "values.yaml").write_text(yaml.safe_dump(VALUES))
    return partial(render_chart, folder)


@pytest.fixture(scope="module")
def rendered(umbrella: Any) -> Any:
    return umbrella({})


def test_shops_of_one_release_share_no_name(rendered: Any) -> None:
    names = Counter((found["kind"], found["metadata"]["name"]) for found in [*rendered.objects, *rendered.hooks])
    assert [name for name, count in names.items() if count > 1] == []
    assert {f"{shop}-checkout" for shop in SHOPS.values()} <= {name for _, name in names}


def test_shops_of_one_release_select_no_pod_of_each_other(rendered: Any) -> None:
    pods = [pod["metadata"]["labels"] for _, pod in rendered.pod_templates()]
    assert {pod[INSTANCE] for pod in pods} == set(SHOPS.values())
    for found in [*rendered.all("Service"), *rendered.all("NetworkPolicy"), *rendered.all("Deployment")]:
        selector = found["spec"].get("selector", found["spec"].get("podSelector"))
        labels = selector.get("matchLabels", selector)
        selected = {pod[INSTANCE] for pod in pods if labels.items() <= pod.items()}
        assert selected <= {found["metadata"]["labels"][INSTANCE]}, found["metadata"]["name"]


def test_a_parent_s_file_leaves_out_a_service(rendered: Any) -> None:
    apis = [f"{shop}-employee-api" for shop in SHOPS.values() if rendered.has("Deployment", f"{shop}-employee-api")]
    assert apis == ["mall-employee-api", "usa-employee-api"]
    storefront = rendered.one("Deployment", "mall-eu-storefront")["spec"]["template"]["spec"]["containers"][0]
    assert "AD_ADDR" not in {variable["name"] for variable in storefront["env"]}


def test_the_condition_leaves_out_a_shop(umbrella: Any) -> None:
    manifests = umbrella({"shop": {"enabled": False}, "us": {"enabled": False}})
    assert {found["metadata"]["labels"][INSTANCE] for found in manifests.objects} == {"mall-eu"}
