"""Helm as a process for the chart at a path: answers a line of JSON, a function's name and its arguments, with another.

Helm's library brings Go's runtime, whose threads and signal handlers would live on beside gRPC's in a test process.
"""

import json
import sys
from typing import Any

from helm_python.chart import Chart, lint
from helm_python.errors import HelmError


def main(path: str) -> None:
    with Chart.load(path) as chart:
        functions = {
            "render": chart.render,
            "validate_schema": chart.validate_schema,
            "lint": lambda values: lint(path, values, strict=True, kube_version="v1.34.0"),
        }
        for line in sys.stdin:
            function, arguments = json.loads(line)
            answer: dict[str, Any]
            try:
                answer = {"result": functions[function](**arguments)}
            except HelmError as error:
                answer = {"error": str(error)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
