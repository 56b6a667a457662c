"""Appends Artifact Hub's annotations of a release to a Chart.yaml, whose last key is `annotations`.

    chart_annotations.py Chart.yaml notes.md URL < images.txt

The notes are those of the version in CHANGELOG.md, the URL is the repository's, and each line of the input is an image.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path


def changes(notes: str) -> Iterator[dict[str, str]]:
    """Yield the items of the notes. The headings of a changelog are the kinds that Artifact Hub knows."""
    kind = ""
    for block in re.split(r"^(?=### |- |$)", notes, flags=re.MULTILINE):
        mark, _, text = " ".join(block.split()).partition(" ")
        if mark == "###":
            kind = text.lower()
        elif mark == "-":
            yield {"kind": kind, "description": text}


def main(chart: str, notes: str, url: str) -> None:
    images = sys.stdin.read().split()
    found = {
        "changes": [*changes(Path(notes).read_text())],
        "images": [{"name": re.split("[:@]", image.split("/")[-1])[0], "image": image} for image in images],
        "links": [{"name": "source", "url": url}, {"name": "support", "url": f"{url}/issues"}],
    }
    # JSON is YAML, and a JSON string a YAML string.
    with Path(chart).open("a") as file:
        file.writelines(f"  artifacthub.io/{key}: {json.dumps(json.dumps(value))}\n" for key, value in found.items())


if __name__ == "__main__":
    main(*sys.argv[1:])
