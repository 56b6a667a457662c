"""With `tls.enabled`, each component has a certificate of its own, presents it, and verifies those of the others."""

import re
import shutil
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from chassis.tls.certificates import Certificates
from shop_cli.local.authority import Authority, Issued

CHART = Path(__file__).resolve().parents[2] / "charts/shop"
TLS = {"tls": {"enabled": True}, "observability": {"enabled": True}}
CERT_MANAGER = {"enabled": True, "issuer": "cert-manager", "issuerRef": {"name": "ca"}}
MOUNT = {"name": "tls", "mountPath": "/etc/shop-tls", "readOnly": True}
PLAIN = re.compile("prometheus|loki|jaeger|grafana")
"""They store telemetry, which names no customer."""


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
    assert secrets_of(manifests) == {}
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


def secrets_of(manifests: Any) -> dict[str, dict[str, str]]:
    """Return the data of the Secrets with certificates, in base64."""
    found = [secret for secret in manifests.all("Secret") if secret["type"] == "kubernetes.io/tls"]
    return {secret["metadata"]["name"]: secret["data"] for secret in found}


def verify(secret: dict[str, str], name: str) -> x509.Certificate:
    """Return the certificate in a Secret, if a client that connects to a name accepts it."""
    store = Store(x509.load_pem_x509_certificates(b64decode(secret["ca.crt"])))
    certificate = x509.load_pem_x509_certificate(b64decode(secret["tls.crt"]))
    PolicyBuilder().store(store).build_server_verifier(x509.DNSName(name)).verify(certificate, [])
    return certificate


def test_for_a_trial_helm_issues_the_same_names_for_a_year(manifests: Any, render: Any, tmp_path: Path) -> None:
    certificates = render({**TLS, "tls": CERT_MANAGER}).all("Certificate")
    names = {found["spec"]["secretName"]: found["spec"]["dnsNames"] for found in certificates}
    secrets = secrets_of(manifests)
    assert not manifests.all("Certificate")
    authority = secrets.pop("shop-authority")
    assert secrets.keys() == names.keys()
    for name, secret in secrets.items():
        certificate = verify(secret, names[name][0])
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert alternatives.get_values_for_type(x509.DNSName) == names[name]
        assert secret["ca.crt"] == authority["ca.crt"] == authority["tls.crt"]
        for file, content in secret.items():
            (tmp_path / file).write_bytes(b64decode(content))
        assert Certificates(tmp_path).current.expires_at == pytest.approx(time.time() + 365 * 86_400, abs=86_400)


@pytest.fixture(scope="module")
def upgrade(tmp_path_factory: pytest.TempPathFactory, render_chart: Any) -> Callable[..., dict[str, Any]]:
    """Return the certificates that an upgrade renders, by the names of their Secrets.

    It finds those that Helm wrote, and those of the job of an earlier release.
    """
    chart = tmp_path_factory.mktemp("upgrade") / "shop"
    shutil.copytree(CHART, chart)
    (chart / "values.schema.json").unlink()
    template = chart / "templates/authority.yaml"
    looked_up, found = 'lookup "v1" "Secret" (index . 0).Release.Namespace', "get (index . 0).Values.found"
    assert looked_up in template.read_text()
    template.write_text(template.read_text().replace(looked_up, found))

    def rendered(helm: dict[str, Any], job: dict[str, Any] | None = None) -> dict[str, Any]:
        own = {"labels": {"app.kubernetes.io/managed-by": "Helm"}}
        existing = {name: {"metadata": own, "data": data} for name, data in helm.items()}
        existing |= {name: {"metadata": {}, "data": data} for name, data in (job or {}).items()}
        return secrets_of(render_chart(chart, {"tls": {"enabled": True}, "found": existing}))

    return rendered


def data_of(issued: Issued, authority: Authority) -> dict[str, str]:
    files = {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": authority.certificate}
    return {name: b64encode(content).decode() for name, content in files.items()}


def of_the_job(days: int, authority_days: int = 300) -> dict[str, Any]:
    """Return an authority of the job of an earlier release, and a certificate, which last for some days."""
    authority = Authority.create("shop 2026-11-28T03:17:00.123456Z", timedelta(days=authority_days))
    issued = authority.issue(["mall-cart"], "spiffe://cluster.local/ns/shop/sa/mall-cart", timedelta(days=days))
    return {"mall-authority": data_of(authority, authority), "mall-cart-tls": data_of(issued, authority)}


def test_upgrades_keep_what_helm_issued_and_replace_what_is_unusable(upgrade: Any) -> None:
    installed = upgrade({})
    assert upgrade(installed) == installed
    garbage = {**installed["mall-cart-tls"], "tls.crt": "Z2FyYmFnZQ=="}
    repaired = upgrade({**installed, "mall-cart-tls": garbage})
    verify(repaired.pop("mall-cart-tls"), "mall-cart")
    assert repaired == {name: installed[name] for name in repaired}


def test_upgrades_renew_by_the_same_authority_what_ends_within_120_days(upgrade: Any) -> None:
    before = of_the_job(days=119)
    after = upgrade(before)
    assert after["mall-authority"] == before["mall-authority"]
    renewed = verify(after["mall-cart-tls"], "mall-cart")
    assert renewed.not_valid_after_utc > datetime.now(UTC) + timedelta(days=360)
    verify({**after["mall-cart-tls"], "ca.crt": before["mall-cart-tls"]["ca.crt"]}, "mall-cart")


def test_an_authority_that_ends_soon_is_replaced_with_all_certificates(upgrade: Any) -> None:
    before = of_the_job(days=300, authority_days=119)
    after = upgrade(before)
    assert [name for name, data in before.items() if {*data.values()} & {*after[name].values()}] == []
    verify(after["mall-cart-tls"], "mall-cart")


def test_what_the_job_of_an_earlier_release_wrote_stays_until_it_is_deleted_or_ends(upgrade: Any) -> None:
    job = of_the_job(days=2)
    first = upgrade({}, job)
    assert not first.keys() & job.keys()
    verify({**first["mall-ad-tls"], "ca.crt": job["mall-authority"]["tls.crt"]}, "mall-ad")
    certificate = job.pop("mall-cart-tls")
    second = upgrade(first, job)
    verify({**second.pop("mall-cart-tls"), "ca.crt": certificate["ca.crt"]}, "mall-cart")
    assert second == first
    # Helm names each that it may not write.
    assert upgrade({}, of_the_job(days=0, authority_days=0)).keys() >= job.keys()
