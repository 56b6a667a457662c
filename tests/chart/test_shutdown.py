"""A stopping pod serves until no caller uses its address; one value sets all times."""

from typing import Any

import pytest


def pre_stop_seconds(manifests: Any, name: str) -> int:
    return int(manifests.container(name)["lifecycle"]["preStop"]["sleep"]["seconds"])


@pytest.mark.parametrize("ttl", [0, 30, 300])
def test_a_pod_serves_until_dns_and_connections_expire(render: Any, grpc_services: list[str], ttl: int) -> None:
    manifests = render({"defaults": {"shutdown": {"dnsTtlSeconds": ttl}}})
    for name in grpc_services:
        age = float(manifests.environment(name)["MAX_CONNECTION_AGE_SECONDS"])
        # gRPC closes a connection up to a tenth later than its maximum age.
        assert ttl + 1.1 * age < pre_stop_seconds(manifests, name) <= ttl + 1.1 * age + 5


@pytest.mark.parametrize(("ttl", "expected"), [({}, (50, "15", 77)), ({"dnsTtlSeconds": 5}, (14, "5", 41))])
def test_the_times_are_those_that_the_readme_derives(render: Any, ttl: Any, expected: tuple[int, str, int]) -> None:
    manifests = render({"defaults": {"shutdown": ttl}})
    age = manifests.environment("cart")["MAX_CONNECTION_AGE_SECONDS"]
    grace = manifests.pod("cart")["spec"]["terminationGracePeriodSeconds"]
    assert (pre_stop_seconds(manifests, "cart"), age, grace) == expected


def test_callers_over_http_use_a_virtual_address_and_no_dns(render: Any) -> None:
    assert pre_stop_seconds(render({"defaults": {"shutdown": {"dnsTtlSeconds": 300}}}), "employee-api") == 6


def test_the_grace_period_covers_the_whole_shutdown(render: Any, matrix_values: dict[str, Any]) -> None:
    for name, pod in render(matrix_values).pod_templates():
        container = pod["spec"]["containers"][0]
        variables = {variable["name"]: variable.get("value") for variable in container.get("env", [])}
        if "GRACE_SECONDS" in variables:
            after_sigterm = float(variables["DRAIN_SECONDS"]) + float(variables["GRACE_SECONDS"])
            before_sigterm = container["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert pod["spec"]["terminationGracePeriodSeconds"] > before_sigterm + after_sigterm, name
