"""Check every third-party image in the chart's values against its registry; exit 1 if one is wrong.

`python image_tags.py [VALUES]`: each tag must exist, and a digest beside it must be the one that the tag has now.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

VALUES = Path(__file__).resolve().parents[2] / "charts" / "shop" / "values.yaml"


def third_party_images(values: Any) -> Iterator[dict[str, str]]:
    """Yield every image that has a registry and a tag of its own."""
    if isinstance(values, dict):
        if {"registry", "repository", "tag", "digest"} <= set(values):
            yield values
        else:
            for value in values.values():
                yield from third_party_images(value)


def current_digest(reference: str) -> str | None:
    """Return the digest of a tag in its registry; None if there is no such tag."""
    command = ["docker", "buildx", "imagetools", "inspect", reference, "--format", "{{json .Manifest}}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return str(json.loads(ended.stdout)["digest"]) if ended.returncode == 0 else None


def main(file: Path) -> int:
    """Print one line per image; return 0 if all are right."""
    failed = 0
    for image in third_party_images(yaml.safe_load(file.read_text(encoding="utf-8"))):
        reference = f"{image['registry']}/{image['repository']}:{image['tag']}"
        digest = current_digest(reference)
        right = digest is not None and image["digest"] in {"", digest}
        failed += not right
        print(f"{'ok' if right else 'WRONG':<6} {reference} {digest or 'does not exist'}", flush=True)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else VALUES))
