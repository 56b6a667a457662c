"""Runs Helm for the chart at a path: reads lines of JSON `[function, arguments]` and answers each with a line of JSON.

A process of its own, because Helm's library starts the Go runtime, whose threads and signal handlers would disturb gRPC
in the test process.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from helm_python import _native
from helm_python.chart import Chart
from helm_python.errors import HelmError

API_VERSIONS = [
    "cert-manager.io/v1",
    "gateway.networking.k8s.io/v1",
    "keda.sh/v1alpha1",
    "policy.linkerd.io/v1beta3",
    "postgresql.cnpg.io/v1",
    "security.istio.io/v1",
]
"""Of operators and meshes, which a render takes as installed."""


def render(chart: Chart, values: dict[str, Any], **options: Any) -> Any:
    """Do what `Chart.render` does, which takes no API versions."""
    options = {"api_versions": API_VERSIONS, **options}
    return json.loads(_native.call_string("helm_render", chart._raw(), json.dumps(values), json.dumps(options)))


def main(path: str) -> None:
    with Chart.load(path) as chart:
        functions: dict[str, Callable[..., Any]] = {
            "render": partial(render, chart),
            "validate_schema": chart.validate_schema,
        }
        for line in sys.stdin:
            function, arguments = json.loads(line)
            response: dict[str, Any]
            try:
                response = {"result": functions[function](**arguments)}
            except HelmError as error:
                response = {"error": str(error)}
            sys.stdout.write(json.dumps(response) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
