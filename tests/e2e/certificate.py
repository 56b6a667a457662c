"""Issues a certificate for these scripts: `kubectl get secret shop-authority -o json | certificate.py FOLDER`.

FOLDER gets tls.crt, tls.key and ca.crt. The chart lets its SPIFFE name call everything with tls-values.yaml.
"""

import base64
import json
import sys
from datetime import timedelta
from pathlib import Path

from shop_cli.local.authority import Authority

SPIFFE_ID = "spiffe://cluster.local/ns/e2e/sa/operator"


def main(folder: Path) -> None:
    secret = {key: base64.b64decode(value) for key, value in json.load(sys.stdin)["data"].items()}
    issued = Authority(secret["tls.crt"], secret["tls.key"]).issue(["e2e"], SPIFFE_ID, timedelta(days=1))
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, content in {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": secret["ca.crt"]}.items():
        (folder / name).touch(0o600)
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
