"""Checks the third-party images of rendered manifests against their registries; exits 1 unless all are right.

`helm template shop charts/shop --set observability.enabled=true | python image_tags.py`

Each tag must exist, and so must a digest beside it: a tag that is rebuilt moves on from the digest.
"""

import json
import re
import subprocess
import sys

IMAGE = re.compile(r"\bimage: \"?(?P<tagged>[^\s\"@]+)(?:@(?P<digest>sha256:[0-9a-f]{64}))?")
UNPUBLISHED = "not-published.invalid/"


def digest_of(image: str) -> str | None:
    """Return the digest of a tag, or that in the image's name, in its registry; None if there is no such image."""
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{json .Manifest}}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return str(json.loads(ended.stdout)["digest"]) if ended.returncode == 0 else None


def main(manifests: str) -> int:
    """Print one line per image; return 0 if there are images and all are right."""
    images = [image for image in sorted(set(IMAGE.findall(manifests))) if not image[0].startswith(UNPUBLISHED)]
    wrong = 0
    for tagged, stated in images:
        current = digest_of(tagged)
        right = current is not None and (stated in {"", current} or digest_of(f"{tagged}@{stated}") == stated)
        wrong += not right
        verdict = ("ok" if stated in {"", current} else "moved") if right else "WRONG"
        print(f"{verdict:<6} {tagged} {current or 'does not exist'}", flush=True)  # noqa: T201
    return 0 if images and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(sys.stdin.read()))
