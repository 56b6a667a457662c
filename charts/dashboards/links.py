"""Links from panels to other dashboards, to traces and to logs; variables and the time range are kept."""

import json
import re
from dataclasses import dataclass
from urllib.parse import quote

from grafana_foundation_sdk.builders.dashboard import DashboardLink

_KEPT = "&".join(f"${{{name}:queryparam}}" for name in ("datasource", "traces", "logs", "namespace", "release"))


@dataclass(frozen=True)
class Link:
    """A link of a value, a series or a row."""

    title: str
    url: str

    def build(self) -> DashboardLink:
        """Return Grafana's form of it."""
        return DashboardLink(self.title).url(self.url)


def uid(name: str) -> str:
    """Return the identifier of the dashboard that `name.json` contains; the chart replaces `shop` by the release."""
    return f"shop-{name}"


def to_service(service: str) -> Link:
    """Return a link to the dashboard of a service, named by a variable of Grafana such as `${__value.text}`."""
    return Link(
        "Why? Look into this service", f"/d/{uid('service')}?${{__url_time_range}}&{_KEPT}&var-service={service}"
    )


def _explore(title: str, source: str, query: dict[str, str]) -> Link:
    pane = {
        "datasource": source,
        "queries": [{"refId": "A", "datasource": {"uid": source}, **query}],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    parts = re.split(r"(\$\{[^}]*\})", json.dumps({"a": pane}, separators=(",", ":")))
    # Grafana replaces its variables before it reads the address, so these must not be escaped.
    escaped = "".join(part if part.startswith("${") else quote(part, safe="") for part in parts)
    return Link(title, f"/explore?schemaVersion=1&panes={escaped}")


def to_traces(service: str) -> Link:
    """Return a link to the traces of a service, in Jaeger or Tempo: `traces_query` is the type of the query."""
    traceql = f'{{resource.service.name="{service}" && resource.k8s.namespace.name="${{namespace}}"}}'
    query = {"queryType": "${traces_query}", "service": service, "query": traceql}
    return _explore("Traces of this service", "${traces}", query)


def to_logs(service: str) -> Link:
    """Return a link to the logs of a service in Loki."""
    logql = f'{{service_name="{service}",k8s_namespace_name="${{namespace}}"}}'
    return _explore("Logs of this service", "${logs}", {"expr": logql, "queryType": "range"})


def signals_of(service: str) -> tuple[Link, Link]:
    """Return the links to the traces and to the logs of a service."""
    return to_traces(service), to_logs(service)


def everything_of(service: str) -> tuple[Link, ...]:
    """Return the links to a service's dashboard, traces and logs."""
    return to_service(service), *signals_of(service)


OF_SERIES = everything_of("${__field.labels.service_name}")
"""The links of a graph whose series have the label `service_name`."""

OF_ROW = everything_of("${__value.text}")
"""The links of a table whose first column is a service."""
