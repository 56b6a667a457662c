"""Alertmanager sends what values say, and inhibits alerts that follow from others."""

import re
from typing import Any

EVERYTHING = {"observability": {"enabled": True, "alertmanager": {"enabled": True}}}


def test_alertmanager_inhibits_the_callers_of_a_service_that_burns(render: Any, values: dict[str, Any]) -> None:
    config = render(EVERYTHING).config("alertmanager", "alertmanager.yml")
    edges = set()
    for rule in config["inhibit_rules"]:
        source, target = (
            dict(re.findall(r'^(\w+)=~?"(.*)"$', "\n".join(rule[side]), re.MULTILINE))
            for side in ("source_matchers", "target_matchers")
        )
        if source["alertname"] == "CallsFail":
            assert (source["severity"], target) == ("page", {"alertname": "OrderOpenTooLong"})
            continue
        assert source["alertname"] == "ErrorBudgetBurn|CallsFail"
        if "service_name" in target:
            assert target["alertname"] == "ErrorBudgetBurn"
            assert source["severity"] == target["severity"]
            edges |= {(target["service_name"], callee) for callee in source["service_name"].split("|")}
        else:
            assert (source["severity"], target["severity"]) == ("page", "ticket")
            assert rule["equal"] == ["k8s_namespace_name", "alertname", "service_name", "slo"]
    assert edges == {
        (name, callee) for name, entry in values["services"].items() for callee in (entry or {}).get("calls", [])
    }


def test_alertmanager_sends_what_values_say(render: Any) -> None:
    settings: dict[str, Any] = {
        "enabled": True,
        "receivers": [{"name": "phone", "webhook_configs": [{"url_file": "/etc/alertmanager-secrets/url"}]}],
        "pageReceiver": "phone",
        "ticketReceiver": "phone",
        "secret": "receivers",
        "egress": [{"ports": [{"port": 443}]}],
    }
    manifests = render({"observability": {"enabled": True, "alertmanager": settings}})
    config = manifests.config("alertmanager", "alertmanager.yml")
    assert config["receivers"] == settings["receivers"]
    assert config["route"]["routes"][0]["receiver"] == "phone"
    pod = manifests.pod("alertmanager")["spec"]
    assert {"name": "secrets", "secret": {"secretName": "receivers"}} in pod["volumes"]
    assert "/etc/alertmanager-secrets" in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert settings["egress"][0] in manifests.one("NetworkPolicy", "shop-alertmanager")["spec"]["egress"]


def test_prometheus_sends_alerts_to_alertmanager_only_if_it_is_installed(render: Any) -> None:
    for values, expected in ((EVERYTHING, True), ({"observability": {"enabled": True}}, False)):
        manifests = render(values)
        assert manifests.has("Deployment", "shop-alertmanager") is expected
        assert ("alerting" in manifests.config("prometheus", "prometheus.yml")) is expected
