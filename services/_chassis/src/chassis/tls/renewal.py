"""Issues all certificates of a release anew, from an authority of its own: `python -m chassis.tls.renewal`.

Calls go on while that authority is replaced: all trust its successor before that signs.
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
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Data = Mapping[str, bytes]


def new_authority() -> Data:
    """Create an authority's Secret; `tls.crt` signs, `ca.crt` has all that are trusted."""
    # Names differ, because a certificate names its issuer.
    created = Authority.create(f"shop {datetime.now(UTC):%FT%T.%fZ}", AUTHORITY_VALID)
    return {"tls.crt": created.certificate, "tls.key": created.key, "ca.crt": created.certificate}


def succeed(authority: Data, now: datetime) -> Data:
    """Return the authority with a successor, once a third of its life is left; the successor, after a month."""
    if "next.crt" in authority:
        # By then every certificate that is still valid was issued with a bundle that has the successor.
        if _certificate(authority, "next.crt").not_valid_before_utc > now - LEAF_VALID:
            return authority
        bundle = authority["tls.crt"] + authority["next.crt"]
        return {"tls.crt": authority["next.crt"], "tls.key": authority["next.key"], "ca.crt": bundle}
    if _certificate(authority).not_valid_after_utc - now > AUTHORITY_VALID / 3:
        return authority
    new = new_authority()
    bundle = authority["tls.crt"] + new["tls.crt"]
    return {**authority, "next.crt": new["tls.crt"], "next.key": new["tls.key"], "ca.crt": bundle}


def _certificate(authority: Data, name: str = "tls.crt") -> x509.Certificate:
    return x509.load_pem_x509_certificate(authority[name])


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

    def read(self, name: str) -> tuple[Data, str]:
        """Return a Secret and its version; both are empty if there is none."""
        found = self._request("GET", name) or {}
        data = {key: b64decode(value) for key, value in found.get("data", {}).items()}
        return data, found.get("metadata", {}).get("resourceVersion", "")

    def write(self, name: str, data: Data, version: str | None = None) -> None:
        """Create or replace a Secret. Raise OSError if it has not this version, or exists and that is empty."""
        metadata = {**self._metadata, "name": name} | ({"resourceVersion": version} if version else {})
        encoded = {key: b64encode(value).decode() for key, value in data.items()}
        kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
        # Of two managers that create it, the second has a conflict. POST would need the right to create any Secret.
        manager = self._creator if version == "" else "shop-authority&force=true"
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
    authority, version = secrets.read(name)
    if not authority or _certificate(authority).not_valid_after_utc < now:  # nobody accepts it any more
        authority = new_authority()
    authority = succeed(authority, now)
    signer = Authority(authority["tls.crt"], authority["tls.key"])
    secrets.write(name, authority, version)
    for leaf, subject in subjects.items():
        issued = signer.issue(**subject, valid=LEAF_VALID)
        secrets.write(leaf, {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": authority["ca.crt"]})


if __name__ == "__main__":
    main(datetime.now(UTC))
