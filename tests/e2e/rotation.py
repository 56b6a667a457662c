"""Replaces all certificates of a release each minute, and halfway their authority.

`rotation.py NAMESPACE RELEASE MINUTES`. Helm issued the certificates, and its next upgrade uses the new authority.
"""

import base64
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from shop_cli.local.authority import Authority

ROUND_SECONDS = 60
# Rounds for which a bundle or a signer is in force before the next step: kubelet replaces files within two minutes.
SETTLING_ROUNDS = 4
LEAF_VALID = timedelta(days=1)
OWN = {"e2e-tls": {"names": ["e2e"], "spiffe_id": "spiffe://cluster.local/ns/e2e/sa/operator"}}


class Release:
    def __init__(self, namespace: str, name: str) -> None:
        self._namespace, self.name = namespace, name

    def kubectl(self, *arguments: str, given: Any = None) -> str:
        command = ["kubectl", "--namespace", self._namespace, *arguments]
        return subprocess.run(command, input=json.dumps(given), check=True, stdout=subprocess.PIPE, text=True).stdout

    def subjects(self) -> dict[str, Any]:
        """Return what the release's certificates and that of these scripts certify, by the name of the Secret."""
        listed = self.kubectl("get", "secrets", "--output=jsonpath={.items[*].metadata.name}").split()
        components = [name.removesuffix("-tls") for name in listed if name.endswith("-tls")]
        host = f"{self._namespace}.svc.cluster.local"
        identity = f"spiffe://cluster.local/ns/{self._namespace}/sa"
        return {
            f"{name}-tls": {"names": [name, f"{name}.{host}"], "spiffe_id": f"{identity}/{name}"} for name in components
        } | OWN

    def authority(self) -> Authority:
        data = json.loads(self.kubectl("get", "secret", f"{self.name}-authority", "--output=json"))["data"]
        return Authority(base64.b64decode(data["tls.crt"]), base64.b64decode(data["tls.key"]))

    def write(self, secrets: Mapping[str, Mapping[str, bytes]], number: int) -> None:
        """Replace Secrets, and have kubelet look at the pods that mount them."""
        for name, data in secrets.items():
            encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
            self.kubectl("patch", "secret", name, "--patch", json.dumps({"data": encoded}))
        selector = f"app.kubernetes.io/instance={self.name}"
        self.kubectl("annotate", "pods", "--overwrite", "--selector", selector, f"e2e/rotation={number}")


def issue(signer: Authority, trusted: Sequence[Authority], subjects: Mapping[str, Any]) -> dict[str, dict[str, bytes]]:
    """Return a Secret for each subject."""
    bundle = b"".join(authority.certificate for authority in trusted)
    issued = {name: signer.issue(**subject, valid=LEAF_VALID) for name, subject in subjects.items()}
    return {name: {"tls.crt": one.certificate, "tls.key": one.key, "ca.crt": bundle} for name, one in issued.items()}


def main(release: Release, minutes: int) -> None:
    """Raise CalledProcessError when the cluster refuses a change; whether calls fail is for the load to see."""
    subjects, old = release.subjects(), release.authority()
    new = Authority.create(f"rotation {time.time_ns()}", timedelta(days=365))
    change = max(1, minutes // 2 - SETTLING_ROUNDS)
    steps = {change: (old, [old, new]), change + SETTLING_ROUNDS: (new, [old, new])}
    steps[change + 2 * SETTLING_ROUNDS] = (new, [new])
    signer, trusted = old, [old]
    started = time.monotonic()
    for number in range(max(minutes, *steps) + 1):
        signer, trusted = steps.get(number, (signer, trusted))
        release.write(issue(signer, trusted, subjects), number)
        step = f"signed by the {'new' if signer is new else 'old'} authority, {len(trusted)} trusted"
        print(f"round {number}: {len(subjects)} certificates {step}", flush=True)  # noqa: T201
        time.sleep(max(0.0, started + (number + 1) * ROUND_SECONDS - time.monotonic()))
    secret = {"tls.crt": new.certificate, "tls.key": new.key, "ca.crt": new.certificate}
    release.write({f"{release.name}-authority": secret}, minutes + 1)


if __name__ == "__main__":
    main(Release(sys.argv[1], sys.argv[2]), int(sys.argv[3]))
