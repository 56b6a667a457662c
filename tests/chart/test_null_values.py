"""`null` in place of a value means its empty default or removes an entry; anything else is refused by name."""

from collections.abc import Iterator
from typing import Any

import pytest

Keys = tuple[str, ...]

# Maps whose entries a user removes with `null`.
MAPS = {"services", "slos", "resources", "settings", "labels"}
REMOVABLE = {
    ("defaults", "scheduling", "topologySpreadConstraints"),
    ("postgresql", "settings"),
}
# What renders as much as one release can have.
MUCH = {
    "ingress": {"enabled": True},
    "gateway": {"enabled": True, "parentRefs": [{"name": "public"}]},
    "services": {"storefront": {"url": "https://shop.example.com"}},
    "load": {"enabled": True},
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
def refused(helm: Any, values: dict[str, Any]) -> dict[Keys, str]:
    """Return why the schema refuses `null`, by the keys that lead there."""
    found = {}
    for keys, _ in paths(values):
        try:
            helm("validate_schema", values=with_null(keys, {}))
        except ValueError as error:
            found[keys] = str(error)
    return found


def test_what_must_have_a_value_is_refused_by_name(refused: dict[Keys, str]) -> None:
    assert len(refused) > 100
    for keys, message in refused.items():
        expected = f"shop:\n- at '{'/'.join(('', *keys[:-1]))}': missing property '{keys[-1]}'"
        assert message.strip() == expected


def test_what_may_be_null_is_empty_by_default_or_a_map(values: dict[str, Any], refused: dict[Keys, str]) -> None:
    empty = {keys for keys, default in paths(values) if default in ("", [], {}, False)}
    assert {keys for keys, _ in paths(values)} - refused.keys() - empty == REMOVABLE


@pytest.mark.parametrize("others", [{}, MUCH], ids=["defaults", "much"])
def test_null_renders_as_the_empty_default(
    render: Any, values: dict[str, Any], refused: dict[Keys, str], others: dict[str, Any]
) -> None:
    nulls = others
    for keys, _ in paths(values):
        if keys not in refused and keys not in REMOVABLE:
            nulls = with_null(keys, nulls)
    expected, found = (
        [each for each in render(given).objects if each["kind"] != "Secret"] for given in (others, nulls)
    )
    assert found == expected


def test_null_removes_an_entry_or_its_own_values(render: Any, values: dict[str, Any]) -> None:
    nulls = {
        "services": {"employee-api": None, "storefront": {"resources": None}},
        "postgresql": {"settings": None},
        "valkey": {"resources": {"limits": None}},
        "defaults": {"scheduling": {"topologySpreadConstraints": None}},
        "slos": dict.fromkeys(values["slos"]),
    }
    manifests = render(nulls)
    assert not manifests.has("Deployment", "shop-employee-api")
    assert manifests.container("storefront")["resources"] == values["defaults"]["resources"]
    assert "topologySpreadConstraints" not in manifests.pod("checkout")["spec"]
    stores = {
        name: manifests.one("StatefulSet", f"shop-{name}")["spec"]["template"]["spec"]["containers"][0]
        for name in ("postgresql", "valkey")
    }
    assert "args" not in stores["postgresql"]
    assert "limits" not in stores["valkey"]["resources"]
