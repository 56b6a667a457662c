"""Dashboards are built from code, link to each other, and are found by Grafana."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "charts/shop/dashboards").glob("*.json"))
WALK = ["overview", "services", "service", "orders", "stores", "collector"]
# Grafana's own variables, which need no definition.
BUILT_IN = {"__rate_interval", "__url_time_range", "__from", "__to", "__value.text", "__field.labels.service_name"}
each_dashboard = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def panels(file: Path) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(file.read_text())["panels"] if panel["type"] != "row"]


@each_dashboard
def test_every_panel_has_a_title_of_its_own_a_unit_and_says_what_is_good(file: Path) -> None:
    titles = [panel["title"] for panel in panels(file)]
    assert len(titles) == len(set(titles))
    for panel in panels(file):
        assert "Good: " in panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


@each_dashboard
def test_variables_are_defined_and_links_lead_to_dashboards(file: Path) -> None:
    text = file.read_text()
    dashboard = json.loads(text)
    defined = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_][\w.]*)", text))
    assert used - BUILT_IN <= defined
    assert {link["url"] for link in dashboard["links"]} == {f"/d/shop-{other}" for other in WALK if other != file.stem}
    assert set(re.findall(r"/d/shop-(\w+)", text)) <= set(WALK)
    assert dashboard["uid"] == f"shop-{file.stem}"


def config_maps(manifests: Any) -> dict[str, dict[str, Any]]:
    found = [each for each in manifests.all("ConfigMap") if "-dashboard-" in each["metadata"]["name"]]
    return {each["metadata"]["name"]: each for each in found}


def rendered(manifests: Any) -> dict[str, dict[str, Any]]:
    contents = [each["data"] for each in config_maps(manifests).values()]
    return {name: json.loads(text) for content in contents for name, text in content.items()}


def test_a_grafana_of_ones_own_finds_the_dashboards_by_labels(render: Any) -> None:
    dashboards = {"enabled": True, "annotations": {"grafana_folder": "Shop"}}
    found = config_maps(render({"observability": {"dashboards": dashboards}}))
    assert sorted(found) == sorted(f"shop-dashboard-{name}" for name in WALK)
    for each in found.values():
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "Shop"}
        assert len(json.dumps(each)) < 2**20
    assert config_maps(render()) == {}


def test_the_grafana_of_the_release_starts_with_the_first_question(render: Any) -> None:
    manifests = render({"observability": {"enabled": True}}, name="mine")
    container = manifests.one("Deployment", "mine-grafana")["spec"]["template"]["spec"]
    (volume,) = [volume for volume in container["volumes"] if volume["name"] == "dashboards"]
    mounted = [source["configMap"]["name"] for source in volume["projected"]["sources"]]
    assert mounted == sorted(config_maps(manifests))
    environment = {each["name"]: each.get("value") for each in container["containers"][0]["env"]}
    home = Path(environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert rendered(manifests)[home.name]["title"] == "Is the shop well?"


def test_two_releases_have_dashboards_of_their_own(render: Any) -> None:
    observability = {"observability": {"dashboards": {"enabled": True}}}
    mine, other = (rendered(render(observability, name=name)) for name in ("mine", "other"))
    assert not mine.keys() & other.keys()
    assert not {each["uid"] for each in mine.values()} & {each["uid"] for each in other.values()}
    assert set(re.findall(r"/d/(\w+)-", json.dumps(mine))) == {"mine"}


def test_data_sources_are_chosen_by_name(render: Any) -> None:
    sources = {"metrics": "Mimir", "traces": "Tempo", "tracesType": "tempo", "logs": "My Loki"}
    dashboards = rendered(render({"observability": {"dashboards": {"enabled": True, "dataSources": sources}}}))
    for each in dashboards.values():
        variables = {variable["name"]: variable for variable in each["templating"]["list"]}
        chosen = {name: variables[name]["current"]["text"] for name in ("datasource", "traces", "logs")}
        assert chosen == {"datasource": "Mimir", "traces": "Tempo", "logs": "My Loki"}
        assert (variables["traces"]["query"], variables["traces_query"]["query"]) == ("tempo", "traceql")
