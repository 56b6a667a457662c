"""Writes the published images, and the URL of the runbooks, into the chart's values.

    chart_images.py REGISTRY/REPOSITORY TAG RUNBOOKS values.yaml < digests.txt

Each line of the input is the name of an image and its digest. Edits lines, because `helm show values` prints the
comments too.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path


def replaced(pattern: str, replacement: str, text: str) -> str:
    """Return the text with the one match of the pattern replaced. Raise SystemExit if there is not exactly one."""
    result, count = re.subn(pattern, lambda match: match.expand(replacement), text, flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"{count} matches of {pattern!r} in the values, where one was expected")
    return result


def with_images(values: str, prefix: str, tag: str, digests: Mapping[str, str]) -> str:
    """Return the values with `<prefix>/<name>`, the tag and the digest as the image of each service and of `load`."""
    registry, _, repository = prefix.partition("/")
    values = replaced(r"^(image:\n(?:  .*\n)*?  registry: ).*$", rf"\g<1>{registry}", values)
    values = replaced(r"^(image:\n(?:  .*\n)*?  repository: ).*$", rf"\g<1>{repository}", values)
    head, mark, services = values.partition("\nservices:\n")
    for name, digest in digests.items():
        image = f'image: {{tag: "{tag}", digest: "{digest}"}}'
        if name == "load-generator":
            services = replaced(r"^(load:\n(?:  .*\n)*?  )image: .*$", rf"\g<1>{image}", services)
        else:
            services = replaced(rf"^  {re.escape(name)}:(?: \{{\}})?$", f"  {name}:\n    {image}", services)
    return head + mark + services


def main(prefix: str, tag: str, runbooks: str, file: str) -> None:
    digests = dict(line.split() for line in sys.stdin)
    values = Path(file)
    text = with_images(values.read_text(), prefix, tag, digests)
    values.write_text(replaced(r"^(  runbookUrl: ).*$", rf"\g<1>{runbooks}", text))


if __name__ == "__main__":
    main(*sys.argv[1:])
