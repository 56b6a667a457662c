"""The program of a pod that changes Kubernetes objects back when a record expires. The standard library alone.

A change is a patch of a `type` (`json`, `merge` or `strategic`) to the object at a `url` of the API.
"""

import base64
import json
import ssl
import sys
import time
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import Any

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_API = "https://kubernetes.default.svc"
MANAGER = "upkeep"
"""Owns the fields that were changed, until they are changed back."""
_RETRY_SECONDS = 2.0
_MISSING = (404, 422)


def call(change: dict[str, Any]) -> None:
    """Apply a change. Raise OSError."""
    token = (_ACCOUNT / "token").read_text()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": f"application/{change['type']}-patch+json"}
    url, data = f"{_API}{change['url']}?fieldManager={MANAGER}", json.dumps(change["patch"]).encode()
    request = urllib.request.Request(url, data, headers, method="PATCH")  # noqa: S310 - always https
    context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # authorities of many clusters lack what it requires
    with urllib.request.urlopen(request, timeout=10, context=context):  # noqa: S310 - as above
        pass


def main(file: str) -> None:
    """Wait until a record expires, then make its changes until each has succeeded or its object is gone."""
    record = json.loads(zlib.decompress(base64.b64decode(Path(file).read_text())))
    time.sleep(max(0.0, record["expires"] - time.time()))
    pending = [change for inverse in reversed(record["inverses"]) for change in inverse.get("changes", ())]
    while pending:
        try:
            call(pending[0])
        except OSError as error:
            if not (isinstance(error, urllib.error.HTTPError) and error.code in _MISSING):
                time.sleep(_RETRY_SECONDS)
                continue
        pending.pop(0)


if __name__ == "__main__":
    main(sys.argv[1])
