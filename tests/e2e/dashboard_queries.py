"""Runs the queries of the chart's dashboards against a Prometheus.

`python tests/e2e/dashboard_queries.py http://127.0.0.1:9090` prints a line per query and exits 1 if one is rejected or
has no result.
"""

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "charts" / "shop" / "dashboards"
# As Grafana computes it for a scrape interval of 15 s.
RATE_INTERVAL = "1m"

MAY_BE_EMPTY = {
    # Without a fault there are no such series.
    "Alerts firing",
    "Failures per second by method and status",
    "Failed database operations per second",
    "Requests shed, refused and retried per second",
    "Retries of steps in ten minutes",
    "Orders taken over by recovery in ten minutes",
    "Declined charges in ten minutes",
    "Records that disagree by kind",
    "Dropped by services in five minutes",
    "Failed to send per second",
    "Not queued per second",
    "Dead letters",
    "Orders that need an operator",
    "Notifications in the outbox",
    "Unfinished orders by state",
    "Messages not sent",
    "From cart to order",
    # There is no mail relay.
    "Messages to the mail relay, 99th percentile",
    "Attempts to send a message in ten minutes",
    "Seconds per second spent on calls",
    # Services have certificates with TLS only.
    "Time left of certificates by pod",
    "Failed reloads of certificates by pod, per second",
    # All stores are in PostgreSQL and Valkey.
    "Volumes of SQLite files, used share",
    "Size of SQLite files",
    "Flush, 99th percentile",
    "Writes per flush, mean",
    "Flushes per second",
    # Young: the first samples of one are not old enough, the other is a result of every quarter of an hour.
    "Changes of state per second",
    "Orders compared",
}


def get(prometheus: str, path: str, **parameters: str) -> Any:
    """Return the data that an endpoint of Prometheus's API responds with; raise HTTPError if it is rejected."""
    url = f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310 - the address is the caller's
        return json.load(response)["data"]


def queries(file: Path) -> Iterator[tuple[str, str]]:
    """Yield title and PromQL of each query of a dashboard's panels and annotations, for any values of its variables."""
    dashboard = json.loads(file.read_text())
    found = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", ())]
    found += [(f"annotation: {each['name']}", each["expr"]) for each in dashboard["annotations"]["list"]]
    for title, expression in found:
        query = expression.replace("$__rate_interval", RATE_INTERVAL)
        yield title, re.sub(r"\$[a-z]\w*", ".+", re.sub(r'="(?=\$[a-z])', '=~"', query))


def check(prometheus: str) -> int:
    """Print one line per query; return the number of those that are rejected, or empty without a reason."""
    failed = 0
    for file in sorted(FOLDER.glob("*.json")):
        for title, query in queries(file):
            try:
                series = len(get(prometheus, "query", query=query)["result"])
                wrong = not series and title not in MAY_BE_EMPTY and not title.startswith("annotation: ")
            except urllib.error.HTTPError as error:
                series, wrong = 0, True
                print(error.read().decode())  # noqa: T201
            failed += wrong
            print(f"{file.stem:<10} {title:<55} {series:>4} series{'  <-- WRONG' if wrong else ''}")  # noqa: T201
    return failed


if __name__ == "__main__":
    sys.exit(1 if check(sys.argv[1]) else 0)
