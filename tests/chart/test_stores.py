"""Where services store data: databases, SQLite files, Valkey, memory; their addresses, TLS settings and Secrets."""

import itertools
import json
from typing import Any

import pytest

CA_MOUNT = {"name": "ca", "mountPath": "/etc/shop-ca", "readOnly": True}


def external(**settings: Any) -> dict[str, Any]:
    """Return values for an existing PostgreSQL."""
    return {
        "postgresql": {"enabled": False},
        "externalDatabase": {"host": "db.example.com", **settings},
        "defaults": {"existingSecret": "mine"},
    }


def test_several_replicas_with_an_address_of_their_own_render(render: Any, database_services: list[str]) -> None:
    reference = {"secretRefs": {"DATABASE_URL": {"name": "mine", "key": "url"}}}
    services = {name: {"replicas": 2, **reference} for name in database_services}
    services["payment"] = {"replicas": 2, "env": {"DATABASE_URL": "postgresql://db/orders"}}
    services["cart"] = {"replicas": 2, "env": {"REDIS_URL": "redis://valkey"}}
    manifests = render({"postgresql": {"enabled": False}, "valkey": {"enabled": False}, "services": services})
    assert not manifests.all("PersistentVolumeClaim")
    for name in ("payment", "checkout"):
        assert "PGPASSWORD" not in manifests.environment(name)


def test_a_sqlite_file_is_in_a_volume_that_outlives_its_pod(render: Any, database_services: list[str]) -> None:
    manifests = render({"postgresql": {"enabled": False}})
    for name in database_services:
        assert manifests.environment(name)["DATABASE_URL"] == f"sqlite:////data/{name}.db"
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"shop-{name}"}}
        assert volume in manifests.pod(name)["spec"]["volumes"]
        assert manifests.one("Deployment", f"shop-{name}")["spec"]["strategy"] == {"type": "Recreate"}
        claim = manifests.one("PersistentVolumeClaim", f"shop-{name}")
        assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_a_database_s_certificate_authority_is_mounted_where_libpq_reads_it(
    render: Any, database_services: list[str]
) -> None:
    values = external(sslmode="verify-full", caSecret={"name": "db-ca", "key": "bundle.pem"})
    # An address from a Secret is verified like the external database.
    values["services"] = {"checkout": {"secretRefs": {"DATABASE_URL": {"name": "checkout-app", "key": "uri"}}}}
    manifests = render(values)
    volume = {"name": "ca", "secret": {"secretName": "db-ca", "items": [{"key": "bundle.pem", "path": "ca.crt"}]}}
    for name in database_services:
        pod = manifests.pod(name)["spec"]
        assert volume in pod["volumes"]
        for container in (pod["containers"][0], *pod["initContainers"]):
            assert CA_MOUNT in container["volumeMounts"]
            variables = {variable["name"]: variable.get("value") for variable in container["env"]}
            assert variables["PGSSLMODE"] == "verify-full"
            assert variables["PGSSLROOTCERT"] == "/etc/shop-ca/ca.crt"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"caSecret": {"name": "valkey-ca"}}, "rediss://:$(VALKEY_PASSWORD)@v:6379/0?ssl_ca_certs=/etc/shop-ca/ca.crt"),
        ({"port": 6380}, "rediss://:$(VALKEY_PASSWORD)@v:6380/0"),
        ({"tls": False}, "redis://:$(VALKEY_PASSWORD)@v:6379/0"),
    ],
    ids=["own authority", "authorities of the image", "without TLS"],
)
def test_the_address_of_an_external_valkey(render: Any, settings: dict[str, Any], expected: str) -> None:
    manifests = render(
        {"valkey": {"enabled": False}, "externalValkey": {"host": "v", "existingSecret": "valkey", **settings}}
    )
    assert manifests.environment("cart")["REDIS_URL"] == expected
    password = {"secretKeyRef": {"name": "valkey", "key": "valkey-password"}}
    assert manifests.variables("cart")["VALKEY_PASSWORD"]["valueFrom"] == password
    assert (CA_MOUNT in manifests.container("cart")["volumeMounts"]) is ("caSecret" in settings)


def test_no_certificate_authority_is_mounted_for_the_chart_s_own_stores(render: Any, values: dict[str, Any]) -> None:
    manifests = render({"externalDatabase": {"caSecret": {"name": "x"}}, "externalValkey": {"caSecret": {"name": "x"}}})
    for name in values["services"]:
        assert CA_MOUNT not in manifests.container(name)["volumeMounts"]
        assert not {"PGSSLMODE", "PGSSLROOTCERT"} & set(manifests.environment(name))


def test_every_database_user_has_a_role_whose_password_both_sides_read(
    render: Any, database_services: list[str]
) -> None:
    manifests = render()
    server = manifests.one("StatefulSet", "shop-postgresql")["spec"]["template"]["spec"]["containers"][0]
    variables = {variable["name"]: variable for variable in server["env"]}
    assert sorted(variables["ROLES"]["value"].split()) == sorted(name.replace("-", "_") for name in database_services)
    for name in database_services:
        role = name.replace("-", "_")
        password = manifests.variables(name)["PGPASSWORD"]
        assert password["valueFrom"] == variables[f"{role}_PASSWORD"]["valueFrom"]
        assert manifests.environment(name)["DATABASE_URL"] == f"postgresql://{role}@shop-postgresql:5432/{role}"


def test_databases_are_migrated_before_their_service_starts(render: Any, database_services: list[str]) -> None:
    for name in database_services:
        spec = render().pod(name)["spec"]
        (migrate,) = spec["initContainers"]
        assert migrate["args"] == ["migrate"]
        assert (migrate["image"], migrate["env"]) == (spec["containers"][0]["image"], spec["containers"][0]["env"])


def test_carts_are_on_disk_before_a_call_returns_and_those_of_nobody_alone_yield(render: Any) -> None:
    (container,) = render().one("StatefulSet", "shop-valkey")["spec"]["template"]["spec"]["containers"]
    options = dict(itertools.pairwise(container["args"]))
    assert (options["--appendonly"], options["--appendfsync"]) == ("yes", "always")
    assert options["--maxmemory-policy"] == "volatile-ttl"


def test_secrets_are_random_and_outlive_the_release(render: Any) -> None:
    secrets = render().all("Secret")
    found = [value for secret in secrets for value in secret["data"].values()]
    services = ("checkout", "email", "employee-api", "payment", "shipping", "storefront")
    assert {secret["metadata"]["name"] for secret in secrets} == {
        f"shop-{name}" for name in (*services, "postgresql", "valkey")
    }
    assert len(set(found)) == len(found) == 10
    assert all(len(value) >= 40 for value in found)
    assert all(secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for secret in secrets)


def test_an_existing_secret_is_used_and_none_is_generated(render: Any) -> None:
    manifests = render({"services": {"payment": {"existingSecret": "mine"}}, "valkey": {"existingSecret": "theirs"}})
    assert manifests.variables("payment")["HMAC_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "mine"
    assert manifests.variables("cart")["VALKEY_PASSWORD"]["valueFrom"]["secretKeyRef"]["name"] == "theirs"
    assert not manifests.has("Secret", "shop-payment")
    assert not manifests.has("Secret", "shop-valkey")


def test_secrets_appear_only_in_objects_of_kind_secret(render: Any) -> None:
    manifests = render({"observability": {"enabled": True}})
    secrets = {value for secret in manifests.all("Secret") for value in secret["data"].values()}
    others = json.dumps([found for found in manifests.objects if found["kind"] != "Secret"])
    assert not [value for value in secrets if value in others]
    for service, key in (("payment", "HMAC_KEY"), ("checkout", "HMAC_KEY"), ("storefront", "SESSION_KEY")):
        reference = {"name": f"shop-{service}", "key": key}
        assert manifests.variables(service)[key]["valueFrom"] == {"secretKeyRef": reference}
