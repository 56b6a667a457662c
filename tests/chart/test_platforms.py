"""Clusters that differ: OpenShift, IPv6, a DNS cache on each node."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from chassis.sql.url import validate_url

CI = Path(__file__).resolve().parents[2] / "charts" / "shop" / "ci"


def given(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((CI / f"{name}-values.yaml").read_text()))


def dns_rule(manifests: Any) -> dict[str, Any]:
    (rule,) = manifests.one("NetworkPolicy", "shop-default-deny")["spec"]["egress"]
    return dict(rule)


def test_openshift_chooses_the_ids_of_every_pod(render: Any) -> None:
    pods = list(render({**given("openshift"), "load": {"enabled": True}, "tls": {"enabled": True}}).pod_templates())
    assert len(pods) > 20
    for name, pod in pods:
        contexts = [pod["spec"]["securityContext"], *(each["securityContext"] for each in pod["spec"]["containers"])]
        ids = {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"}
        assert not [context for context in contexts if ids & context.keys()], name
        assert contexts[0]["runAsNonRoot"] is True, name


def test_pods_ask_the_dns_of_openshift_where_it_listens_or_the_cache_of_their_node(render: Any) -> None:
    rule = dns_rule(render(given("openshift")))
    assert rule["ports"] == [{"port": 5353, "protocol": "UDP"}, {"port": 5353, "protocol": "TCP"}]
    assert [peer["podSelector"]["matchLabels"] for peer in rule["to"]] == [
        {"dns.operator.openshift.io/daemonset-dns": "default"}
    ]
    blocks = [peer["ipBlock"]["cidr"] for peer in dns_rule(render(given("node-local-dns")))["to"] if "ipBlock" in peer]
    assert "169.254.20.10/32" in blocks


def test_an_ipv6_address_is_in_brackets_in_urls_only(render: Any, database_services: list[str]) -> None:
    manifests = render(given("ipv6"))
    for name in database_services:
        url = manifests.environment(name)["DATABASE_URL"]
        validate_url(url)
        assert "@[2001:db8::5]:5432/" in url
    assert "@[2001:db8::6]:6379/" in manifests.environment("cart")["REDIS_URL"]
    assert manifests.environment("cart")["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://[2001:db8::7]:80"


@pytest.mark.parametrize("host", ["[2001:db8::5]", "one,two"])
def test_another_host_is_in_urls_as_it_is_written(render: Any, host: str) -> None:
    values = {"postgresql": {"enabled": False}, "externalDatabase": {"host": host}, "defaults": {"existingSecret": "x"}}
    assert f"@{host}:5432/" in render(values).environment("payment")["DATABASE_URL"]
