"""Databases of the operator CloudNativePG: roles and their Secrets, durability, and what clients connect to."""

import base64
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[2] / "charts/shop"
EVERYTHING = yaml.safe_load((CHART / "ci/cloudnativepg-values.yaml").read_text())
ENABLED = {"postgresql": {"cloudnativepg": {"enabled": True}}}
SYNCHRONOUS = {"method": "any", "number": 1}


def test_it_replaces_the_charts_own_server(render: Any) -> None:
    names = {found["metadata"]["name"] for found in render(ENABLED).objects}
    assert "shop-valkey" in names
    assert "shop-postgresql" not in names


def test_services_of_one_durability_share_a_cluster(render: Any) -> None:
    manifests = render(EVERYTHING)
    roles = {
        cluster["metadata"]["name"]: [role["name"] for role in cluster["spec"]["managed"]["roles"]]
        for cluster in manifests.all("Cluster")
    }
    assert roles == {
        "shop-pg-preferred": ["checkout", "email"],
        "shop-pg-required": ["cart", "employee_api", "payment", "shipping"],
    }
    for found in manifests.all("Database"):
        assert found["spec"]["name"] == found["spec"]["owner"]
        assert found["spec"]["owner"] in roles[found["spec"]["cluster"]["name"]]


def test_durability_is_that_of_the_cluster(render: Any) -> None:
    services = {"checkout": {"durability": "asynchronous"}, "email": {"durability": "preferred"}}
    manifests = render({**ENABLED, "services": services})
    expected = {
        "payment": ("required", {**SYNCHRONOUS, "dataDurability": "required", "failoverQuorum": True}),
        "email": ("preferred", {**SYNCHRONOUS, "dataDurability": "preferred", "failoverQuorum": False}),
        "checkout": ("asynchronous", None),
    }
    for name, (durability, synchronous) in expected.items():
        assert manifests.one("Cluster", f"shop-pg-{durability}")["spec"]["postgresql"].get("synchronous") == synchronous
        host = manifests.environment(name)["DATABASE_URL"]
        assert host == f"postgresql://{name}@shop-pg-{durability}-rw:5432/{name}"


def test_role_and_service_read_one_password_which_is_apart_from_keys(render: Any) -> None:
    manifests = render(EVERYTHING)
    for cluster in manifests.all("Cluster"):
        for role in cluster["spec"]["managed"]["roles"]:
            service = role["name"].replace("_", "-")
            secret = manifests.one("Secret", role["passwordSecret"]["name"])
            assert (secret["type"], set(secret["data"])) == ("kubernetes.io/basic-auth", {"username", "password"})
            assert secret["metadata"]["labels"]["cnpg.io/reload"] == "true"
            assert base64.b64decode(secret["data"]["username"]).decode() == role["name"]
            password = manifests.variables(service)["PGPASSWORD"]["valueFrom"]["secretKeyRef"]
            assert password == {"name": secret["metadata"]["name"], "key": "password"}


def test_services_verify_the_primary_by_the_operators_authority(render: Any) -> None:
    manifests = render(EVERYTHING)
    for name, durability in {"cart": "required", "email": "preferred"}.items():
        environment, spec = manifests.environment(name), manifests.pod(name)["spec"]
        assert (environment["PGSSLMODE"], environment["PGSSLROOTCERT"]) == ("verify-full", "/etc/shop-ca/ca.crt")
        items = [{"key": "ca.crt", "path": "ca.crt"}]
        secret = {"secretName": f"shop-pg-{durability}-ca", "items": items}
        assert {"name": "ca", "secret": secret} in spec["volumes"]
        assert spec["initContainers"][-1]["env"] == spec["containers"][0]["env"]


def test_clusters_outlive_the_release_and_databases_their_objects(render: Any) -> None:
    manifests = render(EVERYTHING)
    for found in manifests.all("Cluster"):
        assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not [found for found in manifests.all("Database") if "databaseReclaimPolicy" in found["spec"]]


def test_with_existing_secrets_none_is_generated(render: Any) -> None:
    values = {**ENABLED, "defaults": {"existingSecret": "shop-keys"}, "valkey": {"existingSecret": "shop-keys"}}
    manifests = render(values)
    assert not manifests.all("Secret")
    password = manifests.variables("payment")["PGPASSWORD"]["valueFrom"]
    assert password == {"secretKeyRef": {"name": "shop-payment-database", "key": "password"}}


def test_values_of_the_spec_replace_the_charts_and_pods_are_scheduled_as_the_shops(render: Any) -> None:
    (cluster,) = render(ENABLED).all("Cluster")
    assert "affinity" not in cluster["spec"]
    scheduling = {"tolerations": [{"key": "stores", "operator": "Exists"}], "nodeSelector": {"disk": "fast"}}
    own = {"instances": 5, "postgresql": {"synchronous": {"number": 2}}, "affinity": {"enablePodAntiAffinity": False}}
    values = {"postgresql": {"cloudnativepg": {"enabled": True, "spec": own}}, "scheduling": scheduling}
    (cluster,) = render(values).all("Cluster")
    assert cluster["spec"]["instances"] == 5
    assert cluster["spec"]["postgresql"]["synchronous"]["dataDurability"] == "required"
    assert cluster["spec"]["postgresql"]["synchronous"]["number"] == 2
    assert cluster["spec"]["affinity"] == {**scheduling, "enablePodAntiAffinity": False}


def test_carts_in_postgresql_are_migrated_and_need_no_valkey(render: Any) -> None:
    manifests = render({"services": {"cart": {"store": "postgresql"}}, "valkey": {"enabled": False}})
    assert manifests.environment("cart")["DATABASE_URL"] == "postgresql://cart@shop-postgresql:5432/cart"
    assert "REDIS_URL" not in manifests.environment("cart")
    assert [container["name"] for container in manifests.pod("cart")["spec"]["initContainers"]] == ["migrate"]
