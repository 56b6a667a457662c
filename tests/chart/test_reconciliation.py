from typing import Any

import pytest

from checkout_service.reconciliation.__main__ import ReconciliationSettings


def environment(manifests: Any) -> dict[str, Any]:
    (container,) = manifests.job()["spec"]["containers"]
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def test_the_job_reads_the_internal_services_that_have_records_and_exports_its_metrics(render: Any) -> None:
    found = environment(render({"observability": {"enabled": True}}))
    assert {name: value for name, value in found.items() if name.endswith("_ADDR")} == {
        "CHECKOUT_INTERNAL_ADDR": "shop-checkout:50052",
        "PAYMENT_INTERNAL_ADDR": "shop-payment:50052",
        "SHIPPING_INTERNAL_ADDR": "shop-shipping:50052",
        "EMAIL_INTERNAL_ADDR": "shop-email:50052",
    }
    assert found["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://shop-otel-collector:4317"


def test_a_failed_pod_is_a_failed_check_unless_it_was_evicted(render: Any) -> None:
    job = render().one("CronJob", "shop-reconciliation")["spec"]["jobTemplate"]["spec"]
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert job["podFailurePolicy"]["rules"] == [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ]
    assert job["activeDeadlineSeconds"] > 2 * ReconciliationSettings.wait_seconds


@pytest.mark.parametrize(
    "values",
    [{"reconciliation": {"enabled": False}}, {"services": {"storefront": None, "shipping": None, "checkout": None}}],
)
def test_there_is_no_job_without_records_or_when_it_is_disabled(render: Any, values: dict[str, Any]) -> None:
    assert not render(values).has("CronJob", "shop-reconciliation")
