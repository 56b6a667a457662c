"""Runs every query of the chart's dashboards against a Prometheus; exits 1 if one is rejected or has no result."""

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

DASHBOARDS = Path(__file__).resolve().parents[2] / "charts" / "shop" / "dashboards"
VARIABLES = {"$__rate_interval": "1m", "$service": ".*"}
# Without failures there are no such series.
MAY_BE_EMPTY = {
    "Share of failed calls",
    "Share of failed HTTP requests",
    "Checkout's failed calls per second by method and status",
}
COLLECTOR_IS_SCRAPED = 'up{job="otel-collector"} == 1'


def queries() -> Iterator[tuple[str, str, str]]:
    """Yield dashboard, panel and PromQL of every query."""
    yield "prometheus", "Collector is scraped", COLLECTOR_IS_SCRAPED
    for file in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                yield file.stem, panel["title"], target["expr"]


def result(prometheus: str, query: str) -> list[object]:
    """Run a query; raise HTTPError if it is rejected."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    url = f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - the address is the caller's
        return list(json.load(response)["data"]["result"])


def main(prometheus: str) -> int:
    """Print one line per query; return 0 if all have a result."""
    failed = 0
    for dashboard, title, query in queries():
        try:
            series = len(result(prometheus, query))
        except urllib.error.HTTPError as error:
            series = 0
            print(error.read().decode())  # noqa: T201
        failed += series == 0 and title not in MAY_BE_EMPTY
        print(f"{dashboard:<10} {title:<58} {series:>3} series")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
