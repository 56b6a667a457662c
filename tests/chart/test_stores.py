"""Where services store data: databases, SQLite files, Valkey, memory; their addresses, TLS settings and Secrets."""

import base64
import json
from pathlib import Path
from typing import Any

import yaml

CLOUDNATIVEPG = Path(__file__).resolve().parents[2] / "charts/shop/ci/cloudnativepg-values.yaml"
CA_MOUNT = {"name": "ca", "mountPath": "/etc/shop-ca", "readOnly": True}


def test_no_certificate_authority_is_mounted_for_the_chart_s_own_stores(render: Any, values: dict[str, Any]) -> None:
    manifests = render({"externalDatabase": {"caSecret": {"name": "x"}}, "externalValkey": {"caSecret": {"name": "x"}}})
    for name in values["services"]:
        assert CA_MOUNT not in manifests.container(name)["volumeMounts"]
        assert not {"PGSSLMODE", "PGSSLROOTCERT"} & set(manifests.environment(name))


def test_every_database_user_has_a_role_whose_password_both_read(render: Any, database_services: list[str]) -> None:
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


def test_secrets_appear_only_in_objects_of_kind_secret(render: Any) -> None:
    manifests = render({"observability": {"enabled": True}})
    secrets = {value for secret in manifests.all("Secret") for value in secret["data"].values()}
    others = json.dumps([found for found in manifests.objects if found["kind"] != "Secret"])
    assert not [value for value in secrets if value in others]
    for service, key in (("payment", "HMAC_KEY"), ("checkout", "HMAC_KEY"), ("storefront", "SESSION_KEY")):
        reference = {"name": f"shop-{service}", "key": key}
        assert manifests.variables(service)[key]["valueFrom"] == {"secretKeyRef": reference}


def test_role_and_service_read_one_password_which_is_apart_from_keys(render: Any) -> None:
    manifests = render(yaml.safe_load(CLOUDNATIVEPG.read_text()))
    roles = [role for cluster in manifests.all("Cluster") for role in cluster["spec"]["managed"]["roles"]]
    assert len(roles) == 6
    for role in roles:
        service = role["name"].replace("_", "-")
        secret = manifests.one("Secret", role["passwordSecret"]["name"])
        assert (secret["type"], set(secret["data"])) == ("kubernetes.io/basic-auth", {"username", "password"})
        assert secret["metadata"]["labels"]["cnpg.io/reload"] == "true"
        assert base64.b64decode(secret["data"]["username"]).decode() == role["name"]
        password = manifests.variables(service)["PGPASSWORD"]["valueFrom"]["secretKeyRef"]
        assert password == {"name": secret["metadata"]["name"], "key": "password"}
