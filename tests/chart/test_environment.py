"""Variables of a service: what its entry sets replaces what the chart sets."""

from collections import Counter
from typing import Any

import pytest


def test_a_variable_or_a_reference_replaces_the_chart_s(render: Any) -> None:
    reference = {"name": "mine", "key": "hmac"}
    own = {"env": {"CART_ADDR": "mesh:1", "PGPASSWORD": "secret"}, "secretRefs": {"HMAC_KEY": reference}}
    manifests = render({"services": {"checkout": own}})
    counts = Counter(variable["name"] for variable in manifests.container("checkout")["env"])
    assert max(counts.values()) == 1
    assert manifests.variables("checkout")["HMAC_KEY"]["valueFrom"] == {"secretKeyRef": reference}
    assert manifests.variables("checkout")["CART_ADDR"] == {"name": "CART_ADDR", "value": "mesh:1"}
    assert manifests.variables("checkout")["PGPASSWORD"] == {"name": "PGPASSWORD", "value": "secret"}


def test_a_replaced_variable_keeps_its_place_before_those_that_refer_to_it(render: Any) -> None:
    values = {"observability": {"enabled": True}, "services": {"cart": {"env": {"POD_NAME": "me", "ADDED": "last"}}}}
    names = list(render(values).variables("cart"))
    assert names.index("POD_NAME") < names.index("OTEL_RESOURCE_ATTRIBUTES")
    assert names[-1] == "ADDED"


@pytest.mark.parametrize(
    ("value", "expected"), [(2592000, "2592000"), (0.25, "0.25"), (True, "true"), ("a b", "a b"), (0, "0"), ("", "")]
)
def test_values_reach_the_variable_as_they_are_written(render: Any, value: object, expected: str) -> None:
    manifests = render({"services": {"cart": {"env": {"CART_TTL_SECONDS": value}}}})
    assert manifests.environment("cart")["CART_TTL_SECONDS"] == expected
