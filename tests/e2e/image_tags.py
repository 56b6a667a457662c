"""Checks the third-party images of rendered manifests against their registries; exits 1 unless all are right.

`helm template shop charts/shop --set observability.enabled=true | python image_tags.py`

Each tag must exist, and a digest beside it must be the one that the tag has now.
"""

import json
import re
import subprocess
import sys

IMAGE = re.compile(r"\bimage: \"?(?P<tagged>[^\s\"@]+)(?:@(?P<digest>sha256:[0-9a-f]{64}))?")
UNPUBLISHED = "not-published.invalid/"


def current_digest(tagged: str) -> str | None:
    """Return the digest of a tag in its registry; None if there is no such tag."""
    command = ["docker", "buildx", "imagetools", "inspect", tagged, "--format", "{{json .Manifest}}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return str(json.loads(ended.stdout)["digest"]) if ended.returncode == 0 else None


def main(manifests: str) -> int:
    """Print one line per image; return 0 if there are images and all are right."""
    images = [image for image in sorted(set(IMAGE.findall(manifests))) if not image[0].startswith(UNPUBLISHED)]
    wrong = 0
    for tagged, stated in images:
        digest = current_digest(tagged)
        right = digest is not None and stated in {"", digest}
        wrong += not right
        print(f"{'ok' if right else 'WRONG':<6} {tagged} {digest or 'does not exist'}", flush=True)  # noqa: T201
    return 0 if images and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(sys.stdin.read()))
