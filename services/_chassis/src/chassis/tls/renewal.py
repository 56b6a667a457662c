"""Issues all certificates of a release anew, from an authority of its own: `python -m chassis.tls.renewal`.

Calls go on while that authority is replaced: its successor is trusted, then signs, and then the old one is no longer
trusted. Each run takes one such step at most, and none before every Secret has had the last one for an hour.
"""

import json
import os
import ssl
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

from cryptography import x509

from chassis.tls.authority import Authority

# Issued every day: a month is for runs that fail.
LEAF_VALID = timedelta(days=30)
AUTHORITY_VALID = timedelta(days=365)
# Kubernetes replaces mounted files within minutes.
STEP = timedelta(hours=1)
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Data = Mapping[str, bytes]


def new_authority() -> Data:
    """Create an authority's Secret; `tls.crt` signs, `ca.crt` has all that are trusted."""
    # Names differ, because a certificate names its issuer.
    created = Authority.create(f"shop {datetime.now(UTC):%FT%T.%fZ}", AUTHORITY_VALID)
    return {"tls.crt": created.certificate, "tls.key": created.key, "ca.crt": created.certificate}


def next_step(authority: Data, now: datetime) -> Data:
    """Return the next step of a replacement, which begins when a third of the authority's life is left."""
    if "next.crt" in authority:
        return {"tls.crt": authority["next.crt"], "tls.key": authority["next.key"], "ca.crt": authority["ca.crt"]}
    if authority["ca.crt"] != authority["tls.crt"]:
        return {**authority, "ca.crt": authority["tls.crt"]}
    if _end(authority) - now > AUTHORITY_VALID / 3:
        return authority
    new = new_authority()
    bundle = authority["ca.crt"] + new["ca.crt"]
    return {**authority, "next.crt": new["tls.crt"], "next.key": new["tls.key"], "ca.crt": bundle}


def _end(authority: Data) -> datetime:
    return x509.load_pem_x509_certificate(authority["tls.crt"]).not_valid_after_utc


def reached(authority: Data, leaf: Data, now: datetime) -> bool:
    """Return whether a Secret has had a certificate of the authority, and all that it trusts, for long enough."""
    try:
        issued, signer = (x509.load_pem_x509_certificate(found["tls.crt"]) for found in (leaf, authority))
    except (KeyError, ValueError):
        return False
    lasts = issued.issuer == signer.subject and leaf.get("ca.crt") == authority["ca.crt"]
    return lasts and issued.not_valid_before_utc < now - STEP


class Secrets:
    """The Secrets of a namespace, by the API of Kubernetes; all that are written have the labels in METADATA."""

    def __init__(self, environment: Mapping[str, str], account: Path) -> None:
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        # Certificates of many clusters lack what only the strict check, Python's default, requires.
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._server = environment["KUBERNETES_SERVICE_HOST"], int(environment["KUBERNETES_SERVICE_PORT"])
        self._token = (account / "token").read_text()
        self._path = f"/api/v1/namespaces/{environment['NAMESPACE']}/secrets"
        self._metadata, self._creator = json.loads(environment["METADATA"]), environment["HOSTNAME"]
        self._versions: dict[str, str] = {}

    def read(self, name: str) -> Data | None:
        found = self._request("GET", name)
        if found is None:
            return None
        self._versions[name] = found["metadata"]["resourceVersion"]
        return {key: b64decode(value) for key, value in found.get("data", {}).items()}

    def write(self, name: str, data: Data) -> None:
        """Replace a Secret that was read, or create it. Raise OSError if another process was faster."""
        version = self._versions.get(name)
        metadata = {**self._metadata, "name": name} | ({"resourceVersion": version} if version else {})
        encoded = {key: b64encode(value).decode() for key, value in data.items()}
        kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
        # Of two managers that create it, the second has a conflict. POST would need the right to create any Secret.
        manager = "shop-authority&force=true" if version else self._creator
        self._request(
            "PATCH", f"{name}?fieldManager={manager}", json.dumps({**kind, "metadata": metadata, "data": encoded})
        )

    def _request(self, method: str, path: str, body: str | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/apply-patch+yaml"}
        with closing(HTTPSConnection(*self._server, timeout=10, context=self._tls)) as connection:
            connection.request(method, f"{self._path}/{path}", body, headers)
            response = connection.getresponse()
            content = json.load(response)
        if method == "GET" and response.status == HTTPStatus.NOT_FOUND:
            return None
        if response.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise OSError(f"{method} {path}: {response.status} {content.get('message')}")
        return content


def main(now: datetime, environment: Mapping[str, str] = os.environ, account: Path = _ACCOUNT) -> None:
    """Run once.

    SUBJECTS has the arguments of `Authority.issue` by the name of a Secret, AUTHORITY the name of the authority's.
    """
    secrets = Secrets(environment, account)
    subjects, name = json.loads(environment["SUBJECTS"]), environment["AUTHORITY"]
    authority = secrets.read(name)
    if authority is None or _end(authority) < now:  # in steps it could not be replaced: nobody accepts it any more
        authority = new_authority()
    leaves = [secrets.read(leaf) or {} for leaf in subjects]
    if all(reached(authority, leaf, now) for leaf in leaves):
        authority = next_step(authority, now)
    signer = Authority(authority["tls.crt"], authority["tls.key"])
    secrets.write(name, authority)
    for leaf, subject in subjects.items():
        issued = signer.issue(**subject, valid=LEAF_VALID)
        secrets.write(leaf, {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": authority["ca.crt"]})


if __name__ == "__main__":
    main(datetime.now(UTC))
