"""Parts of PromQL queries over the metrics of `chassis.telemetry.semconv`."""

from chassis.rpc.serving import _SERVER_FAULTS
from chassis.telemetry import semconv
from chassis.telemetry.semconv import Metric

SERVICE = "service_name"
INSTANCE = "service_instance_id"
RELEASE = "shop_release"
NAMESPACE = "k8s_namespace_name"
SCOPE = (f'{RELEASE}="$release"', f'{NAMESPACE}="$namespace"')
"""Matchers of every series of the shop: another release may share the Prometheus."""

THIS_SERVICE = f'{SERVICE}=~"$service"'
WINDOW = "[$__rate_interval]"


def label(attribute: str) -> str:
    """Return the label that Prometheus's OTLP receiver makes of an attribute."""
    return attribute.replace(".", "_")


def legend(*labels: str) -> str:
    """Return the name that Grafana gives a series by its labels."""
    return " ".join(f"{{{{{name}}}}}" for name in labels)


SERVER_FAULT = f'{label(semconv.RPC_STATUS)}=~"{"|".join(sorted(_SERVER_FAULTS))}"'
HTTP_FAULT = f'{label(semconv.HTTP_STATUS)}=~"5.."'


def select(series: str, *matchers: str) -> str:
    """Return the selector of the release's series with this name."""
    return f"{series}{{{','.join((*SCOPE, *matchers))}}}"


def select_rule(series: str, *matchers: str) -> str:
    """Return the selector of what the rules of the release's namespace record."""
    return f"{series}{{{','.join((SCOPE[1], *matchers))}}}"


def firing(severities: str = "page|ticket") -> str:
    """Return the selector of the shop's firing alerts: severities are its own, and not every alert has a namespace."""
    return f'ALERTS{{alertstate="firing",severity=~"{severities}",{NAMESPACE}=~"$namespace|"}}'


def _count(metric: Metric) -> str:
    return metric.series[1] if metric.kind == "histogram" else metric.series[0]


def rate(metric: Metric, by: str, *matchers: str) -> str:
    """Return the rate per second of a counter, or of a histogram's observations, summed by labels."""
    return f"sum by ({by}) (rate({select(_count(metric), *matchers)}{WINDOW}))"


def increase(metric: Metric, by: str, window: str, *matchers: str) -> str:
    """Return the increase of a counter over a window such as `1h`, summed by labels."""
    return f"sum by ({by}) (increase({select(_count(metric), *matchers)}[{window}]))"


def quantile(fraction: float, metric: Metric, by: str, *matchers: str) -> str:
    """Return a quantile of a histogram by labels."""
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({fraction}, sum by ({labels}) (rate({select(metric.series[0], *matchers)}{WINDOW})))"


def observed(metric: Metric, by: str, *matchers: str) -> str:
    """Return the sum of what a histogram observed per second, by labels."""
    return f"sum by ({by}) (rate({select(metric.series[2], *matchers)}{WINDOW}))"


def mean(metric: Metric, by: str, *matchers: str) -> str:
    """Return the mean of what a histogram observed, by labels."""
    return f"{observed(metric, by, *matchers)} / ({rate(metric, by, *matchers)} > 0)"


def total(metric: Metric, by: str, *matchers: str) -> str:
    """Return the sum of a gauge of which each replica reports its own part."""
    return f"sum by ({by}) ({select(metric.series[0], *matchers)})"


def largest(metric: Metric, by: str, *matchers: str) -> str:
    """Return the maximum of a gauge; the right aggregate if each replica reports the same shared state."""
    return f"max by ({by}) ({select(metric.series[0], *matchers)})"


def peak(metric: Metric) -> str:
    """Return the maximum of a gauge over all its series."""
    return f"max({select(metric.series[0])})"


def share(part: str, whole: str) -> str:
    """Return `part / whole`: 0 where there is no part, nothing where there is no traffic."""
    return f"({part} or 0 * {whole}) / ({whole} > 0)"


def failed_share(metric: Metric, by: str, fault: str, *matchers: str) -> str:
    """Return the share of calls that failed by a server's fault, by labels."""
    return share(rate(metric, by, fault, *matchers), rate(metric, by, *matchers))


def requests(by: str, *matchers: str) -> str:
    """Return the rate of served calls and HTTP requests, by labels of the resource."""
    return " or ".join(
        rate(metric, by, *matchers) for metric in (semconv.RPC_SERVER_DURATION, semconv.HTTP_SERVER_DURATION)
    )


def requests_failed(by: str, *matchers: str) -> str:
    """Return the share of served calls and HTTP requests that failed by the service's fault."""
    rpc = failed_share(semconv.RPC_SERVER_DURATION, by, SERVER_FAULT, *matchers)
    http = failed_share(semconv.HTTP_SERVER_DURATION, by, HTTP_FAULT, *matchers)
    return f"{rpc} or {http}"


def requests_quantile(fraction: float, by: str, *matchers: str) -> str:
    """Return a quantile of the duration of served calls and HTTP requests."""
    return " or ".join(
        quantile(fraction, metric, by, *matchers)
        for metric in (semconv.RPC_SERVER_DURATION, semconv.HTTP_SERVER_DURATION)
    )
