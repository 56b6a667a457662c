"""Generates the table of values in charts/shop/README.md from the `# --` comments in values.yaml.

`python tests/chart/values_table.py` writes it; a test fails while the README differs.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "shop"
BEGIN, END = "<!-- values: begin -->", "<!-- values: end -->"
_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z][\w-]*):")
_COMMENT = re.compile(r"^ *# -- (?P<text>.*)$")


def described_keys(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each key that has a `# --` comment above it, with the comment."""
    path: list[str] = []
    pending = ""
    for line in text.splitlines():
        if comment := _COMMENT.match(line):
            pending = comment["text"]
        elif key := _KEY.match(line):
            depth = len(key["indent"]) // 2
            path = [*path[:depth], key["key"]]
            if pending:
                yield tuple(path), pending
            pending = ""


def value_at(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        values = values[key]
    return values


def rendered_table() -> str:
    """Return the table as Markdown."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    rows = ["| Key | Default | Meaning |", "|---|---|---|"]
    for path, comment in described_keys(text):
        default = json.dumps(value_at(values, path), ensure_ascii=False)
        rows.append(f"| `{'.'.join(path)}` | `{default}` | {comment.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def readme_with_table(readme: str) -> str:
    """Return the README with the current table between its two markers."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rendered_table()}\n{END}{after}"


if __name__ == "__main__":
    file = CHART / "README.md"
    file.write_text(readme_with_table(file.read_text(encoding="utf-8")), encoding="utf-8")
