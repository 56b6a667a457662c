"""Runs every query of the chart's dashboards against a Prometheus; exits 1 when one is refused or has no answer."""

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

DASHBOARDS = Path(__file__).resolve().parents[2] / "charts" / "shop" / "dashboards"
VARIABLES = {"$__rate_interval": "1m", "$service": ".*"}
# Nothing fails in a healthy shop, so these may be empty.
MAY_BE_EMPTY = {
    "Share of calls that fail",
    "Calls to others that fail, per second",
    "Orders that are not finished, by state",
}


def answer(prometheus: str, query: str) -> list[object]:
    """Run one query; HTTPError when it is refused."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    url = f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - the address is the caller's
        return list(json.load(response)["data"]["result"])


def main(prometheus: str) -> int:
    """Print a line for each query; 0 when all have an answer."""
    failed = 0
    for file in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                try:
                    series = len(answer(prometheus, target["expr"]))
                except urllib.error.HTTPError as error:
                    series, reason = 0, error.read().decode()
                    print(reason)  # noqa: T201
                failed += series == 0 and panel["title"] not in MAY_BE_EMPTY
                print(f"{file.stem:<10} {panel['title']:<48} {series:>3} series")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
