"""With `tls.enabled`, each component has a certificate of its own, presents it, and verifies those of the others."""

import json
import re
from typing import Any

import psycopg
import pytest

TLS = {"tls": {"enabled": True}, "observability": {"enabled": True}}
CERT_MANAGER = {"enabled": True, "issuer": "cert-manager", "issuerRef": {"name": "ca"}}
MOUNT = {"name": "tls", "mountPath": "/etc/shop-tls", "readOnly": True}
PLAIN = re.compile("prometheus|loki|jaeger|grafana|authority")
"""They store telemetry, which names no customer, or issue what they would need."""


@pytest.fixture(scope="module")
def manifests(render: Any) -> Any:
    return render(TLS)


def components(manifests: Any) -> dict[str, Any]:
    """Return the pods that have a certificate, by component."""
    pods = {name.removeprefix("shop-"): pod["spec"] for name, pod in manifests.pod_templates()}
    return {re.sub("^test-.*", "test", name): pod for name, pod in pods.items() if not PLAIN.match(name)}


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in container.get("env", [])}


def test_each_component_mounts_its_own_certificate_for_its_group_alone(manifests: Any) -> None:
    found = components(manifests)
    assert {"cart", "storefront", "employee-api", "reconciliation", "test", "postgresql", "valkey"} < found.keys()
    for name, pod in found.items():
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "tls")
        assert volume["secret"] == {"secretName": f"shop-{name}-tls", "defaultMode": 0o440}, name
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            # A file mounted by `subPath` would never be replaced.
            assert MOUNT in container["volumeMounts"], name
        servers = {"postgresql", "valkey", "otel-collector"}
        assert (environment(pod["containers"][0]).get("TLS_FOLDER") == "/etc/shop-tls") is (name not in servers), name


def test_without_tls_nothing_of_it_is_rendered(render: Any) -> None:
    objects = render({"observability": {"enabled": True}}).objects
    rendered = str([found for found in objects if found["metadata"]["name"] != "shop-test"])  # its scripts serve both
    assert not re.findall("shop-tls|TLS_FOLDER|verify-full|rediss:|https://shop-", rendered)


def test_the_chart_s_postgresql_refuses_plaintext_from_other_pods(manifests: Any) -> None:
    rules = manifests.one("ConfigMap", "shop-postgresql")["data"]["pg_hba.conf"].splitlines()
    remote = [rule for rule in rules if not re.match(r"#|local |host all all (127\.0\.0\.1/32|::1/128) ", rule)]
    assert remote == ["hostssl all all all scram-sha-256"]


@pytest.mark.parametrize(("replaced", "loads"), [("1 second", [(True,)]), ("1 hour", [])])
def test_a_probe_of_postgresql_loads_a_certificate_that_was_just_replaced(
    manifests: Any, postgres_url: str, replaced: str, loads: Any
) -> None:
    (server,) = manifests.one("StatefulSet", "shop-postgresql")["spec"]["template"]["spec"]["containers"]
    command = server["livenessProbe"]["exec"]["command"][-1]
    # Whatever becomes of the certificate, only a server that does not answer is restarted.
    assert command.endswith("; pg_isready --quiet --host=127.0.0.1 --username=postgres")
    (query,) = re.findall('--command="([^"]+)"', command)
    file = "pg_stat_file('/etc/shop-tls/tls.crt')"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(query.replace(file, "pg_stat_file('PG_VERSION')"))
        connection.execute("SELECT pg_reload_conf()")
        status = f"(SELECT clock_timestamp() - interval '{replaced}' AS modification) AS status"
        assert connection.execute(query.replace(file, status)).fetchall() == loads


def test_cert_manager_issues_the_name_that_clients_connect_to_and_the_caller_s_identity(render: Any) -> None:
    manifests = render({**TLS, "tls": {**CERT_MANAGER, "trustDomain": "example.org"}}, namespace="store")
    certificates = {found["metadata"]["name"]: found["spec"] for found in manifests.all("Certificate")}
    assert certificates.keys() == {f"shop-{name}" for name in components(manifests)}
    accounts = {pod["spec"]["serviceAccountName"] for _, pod in manifests.pod_templates()}
    for name, spec in certificates.items():
        assert spec["secretName"] == f"{name}-tls"
        assert spec["uris"] == [f"spiffe://example.org/ns/store/sa/{name}"]
        assert name in accounts
        suffixes = ("", ".store", ".store.svc", ".store.svc.cluster.local")
        assert spec["dnsNames"] == [f"{name}{suffix}" for suffix in suffixes]
        assert spec["privateKey"] == {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"}
        assert spec["usages"] == ["digital signature", "server auth", "client auth"]
        assert spec["issuerRef"] == {"name": "ca"}


def authority_job(manifests: Any) -> Any:
    (job,) = manifests.all("Job")
    return job


def subjects(manifests: Any) -> dict[str, Any]:
    """Return what the chart's own authority is to issue, by the name of the Secret."""
    (container,) = authority_job(manifests)["spec"]["template"]["spec"]["containers"]
    return dict(json.loads(environment(container)["SUBJECTS"]))


def test_the_chart_s_authority_issues_the_same_as_cert_manager(manifests: Any, render: Any) -> None:
    certificates = [found["spec"] for found in render({**TLS, "tls": CERT_MANAGER}).all("Certificate")]
    assert subjects(manifests) == {
        spec["secretName"]: {"names": spec["dnsNames"], "spiffe_id": spec["uris"][0]} for spec in certificates
    }


def test_the_authority_may_touch_no_other_secret_and_reach_no_other_pod(manifests: Any) -> None:
    (rule,) = manifests.one("Role", "shop-authority")["rules"]
    assert sorted(rule["resourceNames"]) == sorted(["shop-authority", *subjects(manifests)])
    egress = manifests.one("NetworkPolicy", "shop-authority")["spec"]["egress"]
    assert egress == [{"ports": [{"port": port}]} for port in (443, 6443)]


def test_a_job_runs_at_the_installation_and_whenever_it_changes_and_a_cron_job_daily(render: Any) -> None:
    first, same, other = (
        render(values) for values in (TLS, {**TLS, "logLevel": "debug"}, {**TLS, "image": {"tag": "next"}})
    )
    job = authority_job(first)
    assert first.one("CronJob", "shop-authority")["spec"]["jobTemplate"]["spec"] == job["spec"]
    # The pods of a job can't be changed.
    assert authority_job(same) == job
    assert authority_job(other)["metadata"]["name"] != job["metadata"]["name"]


@pytest.mark.parametrize("issuer", ["cert-manager", "existing"])
def test_what_issues_certificates_is_rendered_for_its_issuer_alone(manifests: Any, render: Any, issuer: str) -> None:
    other = render({**TLS, "tls": {**CERT_MANAGER, "issuer": issuer}})
    assert not [*other.all("Job"), *other.all("Role"), *other.all("RoleBinding")]
    assert not other.has("ServiceAccount", "shop-authority")
    assert bool(other.all("Certificate")) is (issuer == "cert-manager")
    assert not manifests.all("Certificate")
