"""catalog-info.yaml lists the services of the chart for Backstage."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import yaml

ROOT = Path(__file__).resolve().parents[2]
CATALOG = list(yaml.safe_load_all((ROOT / "catalog-info.yaml").read_text()))
SCHEMA = json.loads((ROOT / "tests/chart/schemas/backstage.json").read_text())


def test_the_catalog_has_entities_of_backstage_whose_references_exist() -> None:
    references = set()
    for entity in CATALOG:
        spec = entity["spec"]
        if "definition" in spec:
            assert (ROOT / spec["definition"]["$text"]).exists()
            spec = {**spec, "definition": "the text"}
        jsonschema.validate({**entity, "spec": spec}, SCHEMA)
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", entity["metadata"]["name"])
        references |= {f"api:{name}" for key in ("providesApis", "consumesApis") for name in spec.get(key, ())}
        references |= {*spec.get("dependsOn", ()), f"system:{spec.get('system', 'shop')}"}
    names = [f"{entity['kind'].lower()}:{entity['metadata']['name']}" for entity in CATALOG]
    assert len(set(names)) == len(names)
    assert references <= set(names)


def test_the_catalog_has_a_component_for_every_service(values: dict[str, Any]) -> None:
    components = {entity["metadata"]["name"] for entity in CATALOG if entity["kind"] == "Component"}
    assert components == {f"shop-{name}" for name in values["services"]}
