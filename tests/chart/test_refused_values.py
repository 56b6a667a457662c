"""Values that contradict each other or the schema fail the render with an error that names the field."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

REFUSED = yaml.safe_load(Path(__file__).with_name("refused_values.yaml").read_text())


@pytest.mark.parametrize("case", REFUSED["contradictions"], ids=str)
def test_the_error_names_the_field(render: Any, case: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=re.escape(case["message"])):
        render(case["values"])


@pytest.mark.parametrize("case", REFUSED["missing"], ids=str)
def test_the_operator_or_mesh_is_named_that_is_missing(helm: Any, case: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=re.escape(case["message"])):
        helm("render", values=case["values"], name="shop", namespace="shop", api_versions=[])


@pytest.mark.parametrize("name", ["a" * 31, "1shop", "my.shop"])
def test_a_release_whose_name_can_begin_no_other_is_refused(render: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f'fullnameOverride: names can\'t begin with "{re.escape(name)}"'):
        render(name=name)


@pytest.mark.parametrize("values", REFUSED["outside_the_schema"], ids=str)
def test_values_outside_the_schema_are_refused(helm: Any, values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^shop:\n- at '"):
        helm("validate_schema", values=values)


def test_the_schema_accepts_every_file_of_the_matrix(helm: Any, matrix_values: dict[str, Any]) -> None:
    helm("validate_schema", values=matrix_values)
