"""The storefront and its customers: URLs, cookies, traces and replicas."""

from typing import Any

import pytest

URL = "https://shop.example.com:8443"


@pytest.mark.parametrize(("url", "secure"), [(URL, "1"), ("http://shop.example.com", None)])
def test_a_public_url_is_in_e_mails_and_decides_hosts_and_cookies(render: Any, url: str, secure: str | None) -> None:
    manifests = render({"services": {"storefront": {"url": url}}})
    environment = manifests.environment("storefront")
    # Cookies are sent over TLS only if the public URL is https.
    assert environment.get("SECURE_COOKIE") == secure
    assert manifests.environment("email")["STOREFRONT_URL"] == url
    assert "STOREFRONT_URL" not in render().environment("email")
    # The names by which the cluster, the URL and forwarded ports reach it.
    of_service = {f"shop-storefront{domain}" for domain in ("", ".shop", ".shop.svc", ".shop.svc.cluster.local")}
    hosts = of_service | {"localhost", "127.0.0.1", "[::1]", "shop.example.com"}
    assert set(environment["ALLOWED_HOSTS"].split(",")) == hosts


def test_pages_show_traces_of_the_bundled_jaeger(render: Any) -> None:
    manifests = render({"observability": {"enabled": True}})
    assert manifests.environment("storefront")["TRACES_URL"] == "http://shop-jaeger:16686"
    assert "TRACES_URL" not in render().environment("storefront")


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
