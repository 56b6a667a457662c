"""A release's own authority against a stand-in for the API of Kubernetes: what it writes, and in which order."""

import json
import ssl
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from chassis.tls import renewal
from chassis.tls.authority import Authority

NAMES = {name: {"names": [name], "spiffe_id": f"spiffe://cluster.local/ns/shop/sa/{name}"} for name in ("cart", "ad")}
AUTHORITY = "shop-authority"
NOW = datetime.now(UTC)
HOURS = timedelta(hours=1)
A_THIRD_IS_LEFT = NOW + renewal.AUTHORITY_VALID * 0.7

Secret = dict[str, bytes]


class Kubernetes(ThreadingHTTPServer):
    """Secrets with server-side apply: versions, and managers that may not overwrite each other without force."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.secrets: dict[str, dict[str, Any]] = {}
        self.managers: dict[str, str] = {}
        self.refused = ""

    def apply(self, name: str, manager: str, secret: dict[str, Any], *, force: bool) -> int:
        found = self.secrets.get(name)
        version = secret["metadata"].pop("resourceVersion", None)
        if name == self.refused or (version and version != (found or {}).get("version")):
            return 409
        if found and manager != self.managers[name] and not force:
            return 409
        self.managers[name] = manager
        self.secrets[name] = {**secret, "version": str(int((found or {}).get("version", "0")) + 1)}
        return 200 if found else 201

    def data(self, name: str) -> Secret:
        return {key: b64decode(value) for key, value in self.secrets[name]["data"].items()}

    def everything(self) -> dict[str, Secret]:
        return {name: self.data(name) for name in self.secrets}


class Handler(BaseHTTPRequestHandler):
    server: Kubernetes
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = self.server.secrets.get(self.path.rpartition("/")[2])
        metadata = {"resourceVersion": (found or {}).get("version")}
        self.answer(200 if found else 404, {**(found or {}), "metadata": metadata})

    def do_PATCH(self) -> None:
        assert self.headers["Authorization"] == "Bearer token"
        assert self.headers["Content-Type"] == "application/apply-patch+yaml"
        url = urlsplit(self.path)
        secret = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        query = {key: value for key, (value,) in parse_qs(url.query).items()}
        name = url.path.removeprefix("/api/v1/namespaces/shop/secrets/")
        assert name == secret["metadata"]["name"]
        status = self.server.apply(name, query["fieldManager"], secret, force=query.get("force") == "true")
        self.answer(status, {"message": "of the server"})

    def answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a service account's folder, with the certificate of the API server beside it."""
    folder, authority = tmp_path_factory.mktemp("account"), Authority.create("kubernetes", HOURS)
    issued = authority.issue(["kubernetes"], "spiffe://cluster.local/api", HOURS, ["127.0.0.1"])
    files = {"ca.crt": authority.certificate, "token": b"token", "tls.crt": issued.certificate, "tls.key": issued.key}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def kubernetes(account: Path) -> Iterator[Kubernetes]:
    with Kubernetes() as server:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(account / "tls.crt", account / "tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def run(kubernetes: Kubernetes, account: Path) -> Any:
    def once(now: datetime, pod: str = "pod", subjects: Any = NAMES) -> None:
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(kubernetes.server_address[1]),
            "NAMESPACE": "shop",
            "HOSTNAME": pod,
            "AUTHORITY": AUTHORITY,
            "SUBJECTS": json.dumps(subjects),
            "METADATA": json.dumps({"labels": {"app.kubernetes.io/instance": "shop"}}),
        }
        renewal.main(now, environment, account)

    return once


def accepts(client: Secret, server: Secret, name: str) -> None:
    """Verify a server's certificate as a client with another Secret does."""
    authorities = x509.load_pem_x509_certificates(client["ca.crt"])
    verifier = PolicyBuilder().store(Store(authorities)).build_server_verifier(x509.DNSName(name))
    verifier.verify(x509.load_pem_x509_certificate(server["tls.crt"]), [])


def test_the_first_run_creates_an_authority_and_a_certificate_of_it_for_each_subject(
    run: Any, kubernetes: Kubernetes
) -> None:
    run(NOW)
    assert kubernetes.secrets.keys() == {AUTHORITY, *NAMES}
    for secret in kubernetes.secrets.values():
        assert secret["type"] == "kubernetes.io/tls"
        assert secret["metadata"]["labels"] == {"app.kubernetes.io/instance": "shop"}
    for name, subject in NAMES.items():
        assert kubernetes.data(name).keys() == {"tls.crt", "tls.key", "ca.crt"}
        accepts(kubernetes.data("ad"), kubernetes.data(name), name)
        certificate = x509.load_pem_x509_certificate(kubernetes.data(name)["tls.crt"])
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert alternatives.get_values_for_type(x509.UniformResourceIdentifier) == [subject["spiffe_id"]]
        assert NOW + timedelta(days=29) < certificate.not_valid_after_utc < NOW + timedelta(days=31)


def test_a_later_run_renews_all_certificates_of_the_same_authority(run: Any, kubernetes: Kubernetes) -> None:
    run(NOW)
    before = kubernetes.everything()
    run(NOW + timedelta(days=1), pod="other pod")
    after = kubernetes.everything()
    assert after[AUTHORITY] == before[AUTHORITY]
    for name in NAMES:
        assert not {before[name]["tls.key"], before[name]["tls.crt"]} & set(after[name].values())


def test_while_an_authority_is_replaced_everybody_accepts_everybody(run: Any, kubernetes: Kubernetes) -> None:
    run(NOW)
    generations = [kubernetes.everything()]
    for _ in range(6):
        run(A_THIRD_IS_LEFT)
        generations.append(kubernetes.everything())
        # A mounted file is replaced at any time: each pod may have the Secret of this run or of the one before.
        for client, server in ((-2, -1), (-1, -2), (-1, -1)):
            accepts(generations[client]["ad"], generations[server]["cart"], "cart")
    signers = [generation[AUTHORITY]["tls.crt"] for generation in generations]
    assert [signers.index(signer) for signer in signers] == [0, 0, 2, 2, 4, 4, 6]
    assert [generation["ad"]["ca.crt"].count(b"BEGIN") for generation in generations] == [1, *[2] * 6]
    assert "next.key" not in generations[2][AUTHORITY]
    with pytest.raises(VerificationError):
        accepts(generations[3]["ad"], generations[0]["cart"], "cart")


@pytest.mark.parametrize("broken", [{"data": {}}, None], ids=["garbage", "gone"])
def test_a_successor_signs_when_all_certificates_from_before_it_was_trusted_have_ended(
    run: Any, kubernetes: Kubernetes, broken: Any
) -> None:
    run(NOW)
    if broken is None:
        del kubernetes.secrets["ad"]
    else:
        kubernetes.secrets["ad"] |= broken
    signer = kubernetes.data(AUTHORITY)["tls.crt"]
    for now in (A_THIRD_IS_LEFT, NOW, NOW + renewal.LEAF_VALID - HOURS):
        run(now)
        assert kubernetes.data("ad")["ca.crt"].count(b"BEGIN") == 2
        assert kubernetes.data(AUTHORITY)["tls.crt"] == signer
    accepts(kubernetes.data("cart"), kubernetes.data("ad"), "ad")
    run(NOW + renewal.LEAF_VALID + HOURS)
    assert kubernetes.data(AUTHORITY)["tls.crt"] != signer


def test_a_run_that_ends_halfway_is_repeated_and_not_continued(run: Any, kubernetes: Kubernetes) -> None:
    run(NOW)
    kubernetes.refused = "ad"
    with pytest.raises(OSError, match="PATCH ad.*409 of the server"):
        run(A_THIRD_IS_LEFT)
    kubernetes.refused = ""
    successor = kubernetes.data(AUTHORITY)["next.crt"]
    run(NOW)
    assert kubernetes.data(AUTHORITY)["next.crt"] == successor
    assert kubernetes.data("ad")["ca.crt"] == kubernetes.data("cart")["ca.crt"]


@pytest.mark.parametrize("created", [False, True])
def test_of_two_runs_at_a_time_one_fails_before_it_overwrites_the_other_s(
    run: Any, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch, created: bool
) -> None:
    if created:
        run(NOW)
    read, reads = renewal.Secrets.read, []

    def overtaken(secrets: Any, name: str) -> Any:
        found = read(secrets, name)
        reads.append(name)
        if len(reads) == 1:
            run(NOW, pod="faster")
        return found

    monkeypatch.setattr(renewal.Secrets, "read", overtaken)
    with pytest.raises(OSError, match=f"PATCH {AUTHORITY}.*409"):
        run(NOW, pod="slower")
    accepts(kubernetes.data("cart"), kubernetes.data("ad"), "ad")


def test_an_authority_that_has_ended_is_replaced_at_once(run: Any, kubernetes: Kubernetes) -> None:
    run(NOW)
    ended = Authority.create("shop", timedelta(minutes=-1))
    files = {"tls.crt": ended.certificate, "tls.key": ended.key, "ca.crt": ended.certificate}
    kubernetes.secrets[AUTHORITY]["data"] = {name: b64encode(file).decode() for name, file in files.items()}
    run(datetime.now(UTC))
    accepts(kubernetes.data("cart"), kubernetes.data("ad"), "ad")


def test_an_unusable_authority_is_not_replaced(run: Any, kubernetes: Kubernetes) -> None:
    run(NOW)
    kubernetes.secrets[AUTHORITY]["data"]["tls.key"] = "AAAA"
    before = kubernetes.everything()
    with pytest.raises(ValueError, match="Unable to load PEM"):
        run(NOW)
    assert kubernetes.everything() == before
