"""Checks in Prometheus how a service's calls of the last minute spread over its pods: each must have a fifth."""

import sys

from dashboard_queries import get


def calls_by_pod(prometheus: str, service: str) -> dict[str, float]:
    """Return each pod's calls per second."""
    query = f'sum by (k8s_pod_name) (rate(rpc_server_call_duration_seconds_count{{service_name="{service}"}}[1m]))'
    samples = get(prometheus, "query", query=query)["result"]
    return {sample["metric"]["k8s_pod_name"]: float(sample["value"][1]) for sample in samples}


def main(prometheus: str, service: str, pods: int) -> int:
    """Print each pod's share; return 0 when `pods` of them have at least a fifth of the calls each."""
    calls = {pod: rate for pod, rate in calls_by_pod(prometheus, service).items() if rate > 0}
    total = sum(calls.values())
    for pod, rate in sorted(calls.items()):
        print(f"{pod:<45} {rate:6.2f}/s {rate / total:6.1%}")  # noqa: T201
    return 0 if len(calls) == pods and min(calls.values()) >= total / 5 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
