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
from string import Template
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "charts" / "shop" / "dashboards"
# As Grafana computes it for a scrape interval of 15 s.
RATE_INTERVAL = "1m"
EVERY_SERVICE = {"service": ".+"}

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


def _dashboard(name: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / f"{name}.json").read_text()))


def get(prometheus: str, path: str, **parameters: str) -> Any:
    """Return the data that an endpoint of Prometheus's API responds with; raise HTTPError if it is rejected."""
    url = f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310 - the address is the caller's
        return json.load(response)["data"]


def defaults(prometheus: str, name: str, chosen: dict[str, str]) -> dict[str, str]:
    """Return the values of a dashboard's variables: those chosen, else the first that Grafana would offer."""
    values = {"__rate_interval": RATE_INTERVAL, **chosen}
    for variable in _dashboard(name)["templating"]["list"]:
        if variable["type"] == "query" and variable["name"] not in values:
            query = Template(variable["query"]["query"]).safe_substitute(values)
            found = re.fullmatch(r"label_values\((?P<selector>.*), (?P<label>\w+)\)", query)
            assert found, query
            wanted = re.compile(variable.get("regex", "").strip("/"))
            offered = get(prometheus, f"label/{found['label']}/values", **{"match[]": found["selector"]})
            values[variable["name"]] = next((each for each in sorted(offered) if wanted.search(each)), "")
    return values


def queries(name: str) -> Iterator[tuple[str, str]]:
    """Yield title and PromQL of each query of a dashboard's panels, and of its annotations."""
    dashboard = _dashboard(name)
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield f"annotation: {annotation['name']}", annotation["expr"]


def check(prometheus: str) -> int:
    """Print one line per query; return the number of those that are rejected, or empty without a reason."""
    failed = 0
    for name in sorted(file.stem for file in FOLDER.glob("*.json")):
        values = defaults(prometheus, name, EVERY_SERVICE)
        for title, query in queries(name):
            try:
                series = len(get(prometheus, "query", query=Template(query).safe_substitute(values))["result"])
                wrong = not series and title not in MAY_BE_EMPTY and not title.startswith("annotation: ")
            except urllib.error.HTTPError as error:
                series, wrong = 0, True
                print(error.read().decode())  # noqa: T201
            failed += wrong
            print(f"{name:<10} {title:<55} {series:>4} series{'  <-- WRONG' if wrong else ''}")  # noqa: T201
    return failed


if __name__ == "__main__":
    sys.exit(1 if check(sys.argv[1]) else 0)
