"""A stopping pod serves until no caller uses its address; one value sets all times."""

from typing import Any

import pytest


def pre_stop_seconds(manifests: Any, name: str) -> int:
    return int(manifests.container(name)["lifecycle"]["preStop"]["sleep"]["seconds"])


@pytest.mark.parametrize(("ttl", "expected"), [(30, (50, "15", 77)), (5, (14, "5", 41)), (0, (9, "5", 36))])
def test_a_pod_serves_until_dns_and_connections_expire(render: Any, ttl: int, expected: tuple[int, str, int]) -> None:
    manifests = render({"defaults": {"shutdown": {"dnsTtlSeconds": ttl}}} if ttl != 30 else {})
    age = manifests.environment("cart")["MAX_CONNECTION_AGE_SECONDS"]
    grace = manifests.pod("cart")["spec"]["terminationGracePeriodSeconds"]
    assert (pre_stop_seconds(manifests, "cart"), age, grace) == expected
    # gRPC closes a connection up to a tenth later than its maximum age.
    assert pre_stop_seconds(manifests, "cart") > ttl + 1.1 * float(age)
    # Callers over HTTP use a virtual address and no DNS.
    assert pre_stop_seconds(manifests, "employee-api") == 6


def test_the_grace_period_covers_the_whole_shutdown(render: Any, matrix_values: dict[str, Any]) -> None:
    for name, pod in render(matrix_values).pod_templates():
        container = pod["spec"]["containers"][0]
        variables = {variable["name"]: variable.get("value") for variable in container.get("env", [])}
        if "GRACE_SECONDS" in variables:
            after_sigterm = float(variables["DRAIN_SECONDS"]) + float(variables["GRACE_SECONDS"])
            before_sigterm = container["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert pod["spec"]["terminationGracePeriodSeconds"] > before_sigterm + after_sigterm, name
