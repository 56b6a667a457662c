"""The storefront and its customers: URLs, cookies, traces and replicas."""

from typing import Any

import pytest


def with_url(url: str) -> dict[str, Any]:
    return {"services": {"storefront": {"url": url}}}


@pytest.mark.parametrize(("url", "secure"), [("https://shop.example.com", "1"), ("http://shop.example.com", None)])
def test_cookies_are_sent_over_tls_only_if_the_public_url_is_https(render: Any, url: str, secure: str | None) -> None:
    assert render(with_url(url)).environment("storefront").get("SECURE_COOKIE") == secure


def test_e_mails_link_to_the_public_url(render: Any) -> None:
    url = "https://shop.example.com:8443"
    assert render(with_url(url)).environment("email")["STOREFRONT_URL"] == url
    assert "STOREFRONT_URL" not in render().environment("email")


def test_pages_show_traces_of_the_bundled_jaeger(render: Any) -> None:
    manifests = render({"observability": {"enabled": True}})
    assert manifests.environment("storefront")["TRACES_URL"] == "http://shop-jaeger:16686"
    assert "TRACES_URL" not in render().environment("storefront")


def test_all_replicas_verify_sessions_with_one_key_that_outlives_the_release(render: Any) -> None:
    alone, scaled = render(), render({"services": {"storefront": {"replicas": 3}}})
    key = {"secretKeyRef": {"name": "shop-storefront", "key": "SESSION_KEY"}}
    for manifests in (alone, scaled):
        assert manifests.variables("storefront")["SESSION_KEY"]["valueFrom"] == key
        secret = manifests.one("Secret", "shop-storefront")
        assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert scaled.one("Deployment", "shop-storefront")["spec"]["replicas"] == 3
    assert scaled.has("PodDisruptionBudget", "shop-storefront")


def test_customers_visit_the_storefront_at_the_rate_and_shape_of_the_values(render: Any) -> None:
    manifests = render({"load": {"enabled": True, "rate": 2.5, "shape": "spike"}})
    name = "shop-load-generator"
    assert manifests.environment("load-generator") == {
        "WEB_HOST": "::",
        "ALLOWED_HOSTS": f"localhost,127.0.0.1,[::1],{name},{name}.shop,{name}.shop.svc,{name}.shop.svc.cluster.local",
        "STOREFRONT_URL": "http://shop-storefront:8080",
        "RATE": "2.5",
        "SHAPE": "spike",
        "LOG_LEVEL": "info",
    }
    assert manifests.one("Deployment", "shop-load-generator")["spec"]["replicas"] == 1
    (port,) = manifests.one("Service", "shop-load-generator")["spec"]["ports"]
    assert port["port"] == 8089
    container = manifests.container("load-generator")
    assert container["resources"]["requests"]["memory"] == "96Mi"
    # Kubernetes names the pod's address, which is none of its hosts.
    assert container["readinessProbe"]["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
    assert not render().has("Deployment", "shop-load-generator")


def test_the_load_generator_has_a_tag_and_a_digest_of_its_own(render: Any) -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    manifests = render({"load": {"enabled": True, "image": {"tag": "2", "digest": digest}}})
    assert manifests.container("load-generator")["image"] == f"not-published.invalid/shop/load-generator:2@{digest}"


def test_http_services_answer_to_the_names_by_which_the_cluster_the_url_and_forwarded_ports_reach_them(
    render: Any,
) -> None:
    hosts = set(render(with_url("https://shop.example.com:8443")).environment("storefront")["ALLOWED_HOSTS"].split(","))
    of_service = {f"shop-storefront{domain}" for domain in ("", ".shop", ".shop.svc", ".shop.svc.cluster.local")}
    assert hosts == of_service | {"localhost", "127.0.0.1", "[::1]", "shop.example.com"}
