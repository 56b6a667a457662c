"""Lints the chart with values that together render every template: `python tests/chart/lint.py`.

Templates for operators and meshes are rendered by the tests alone: lint does not know their APIs.
"""

import sys
from pathlib import Path

import yaml
from helm_python.chart import lint

CHART = Path(__file__).resolve().parents[2] / "charts/shop"
VALUES = ["customized", "edge", "observability", "scaled", "sqlite", "tls"]
INFO = 1


def complaints(values: Path) -> list[str]:
    """Return what Helm remarks about the chart with these values."""
    report = lint(str(CHART), yaml.safe_load(values.read_text()) or {}, strict=True, kube_version="v1.34.0")
    messages = [str(message) for message in report["messages"] if message["severity"] >= INFO]
    return [f"{values.name}: {found}" for found in [*messages, *report["errors"]]]


def main() -> int:
    files = [CHART / f"ci/{name}-values.yaml" for name in VALUES]
    found = [complaint for file in files for complaint in complaints(file)]
    sys.stdout.writelines(f"{complaint}\n" for complaint in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
