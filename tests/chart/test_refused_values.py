"""Bad values fail the render with an error that names the field; `null` means an empty default or removes an entry."""

import re
from collections.abc import Iterator
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


Keys = tuple[str, ...]

# Maps whose entries a user removes with `null`.
MAPS = {"services", "slos", "resources", "settings", "labels", "calls", "internalCalls", "callers", "spec"}
REMOVABLE = {("defaults", "scheduling", "topologySpreadConstraints"), ("postgresql", "settings")}
# What renders as much as one release can have.
MUCH = {
    "ingress": {"enabled": True},
    "gateway": {"enabled": True, "parentRefs": [{"name": "public"}]},
    "services": {"storefront": {"url": "https://shop.example.com", "env": {"TRUSTED_PROXIES": "10.0.0.0/16"}}},
    "load": {"enabled": True},
    "tls": {"enabled": True},
    "observability": {
        "enabled": True,
        "alertmanager": {"enabled": True},
        "dashboards": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "serviceMonitor": {"enabled": True, "from": [{"podSelector": {}}]},
    },
}


def paths(tree: dict[str, Any], keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield the keys that lead to every value but the entries of maps, and its default."""
    for key, value in tree.items():
        yield (*keys, key), value
        if isinstance(value, dict) and key not in MAPS:
            yield from paths(value, (*keys, key))


def with_null(keys: Keys, values: dict[str, Any]) -> dict[str, Any]:
    """Return values that have `null` at the end of the keys, unless they have a value there."""
    first, *rest = keys
    if not rest:
        return {first: None, **values}
    return {**values, first: with_null(tuple(rest), values.get(first, {}))}


@pytest.fixture(scope="module")
def refused(helm: Any, values: dict[str, Any]) -> set[Keys]:
    """Return the keys of the values that the schema requires; it must name each where it refuses `null` for it."""
    found = set()
    for parent in {keys[:-1] for keys, _ in paths(values)}:
        nulls: dict[str, Any] = {}
        for keys in (keys for keys, _ in paths(values) if keys[:-1] == parent):
            nulls = with_null(keys, nulls)
        try:
            helm("validate_schema", values=nulls)
        except ValueError as error:
            place, _, names = str(error).strip().partition(": missing propert")
            assert place == f"shop:\n- at '{'/'.join(('', *parent))}'"
            assert re.fullmatch(r"(y|ies) ('\w+'(, )?)+", names)
            found |= {(*parent, name) for name in re.findall(r"'(\w+)'", names)}
    return found


def test_what_must_have_a_value_is_refused_by_name(refused: set[Keys]) -> None:
    assert len(refused) > 100


def test_what_may_be_null_is_empty_by_default_or_a_map(values: dict[str, Any], refused: set[Keys]) -> None:
    empty = {keys for keys, default in paths(values) if default in ("", [], {}, False)}
    assert {keys for keys, _ in paths(values)} - refused - empty == REMOVABLE


@pytest.mark.parametrize("others", [{}, MUCH], ids=["defaults", "much"])
def test_null_renders_as_the_empty_default(
    render: Any, values: dict[str, Any], refused: set[Keys], others: dict[str, Any]
) -> None:
    nulls = others
    for keys, _ in paths(values):
        if keys not in refused and keys not in REMOVABLE:
            nulls = with_null(keys, nulls)
    expected, found = ([one for one in render(given).objects if one["kind"] != "Secret"] for given in (others, nulls))
    assert found == expected


def test_a_job_has_no_address_of_a_service_that_is_removed(render: Any) -> None:
    checkout = {"calls": {"email": None}, "internalCalls": {"email": None}}
    storefront = {"internalCalls": {"email": None}}
    manifests = render({"services": {"email": None, "checkout": checkout, "storefront": storefront}})
    job = str(manifests.one("CronJob", "shop-reconciliation"))
    assert "PAYMENT_INTERNAL_ADDR" in job
    assert "EMAIL_INTERNAL_ADDR" not in job
