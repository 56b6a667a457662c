"""Ask every service of a release whether it is ready. TARGETS holds a line `protocol name host:port` for each."""

import os
import sys
import time
import urllib.error
import urllib.request

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

PATIENCE_SECONDS = 60


def grpc_state(name: str, address: str) -> str:
    """Name the health status of a gRPC service, or the code its channel failed with."""
    with grpc.insecure_channel(address) as channel:
        try:
            request = health_pb2.HealthCheckRequest(service=name)
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)
        except grpc.RpcError as error:
            return str(error.code().name)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def http_state(address: str) -> str:
    """Tell whether an HTTP service is ready, or what it answered instead."""
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=5):
            return "SERVING"
    except (urllib.error.URLError, TimeoutError) as error:
        return str(error)


def state(protocol: str, name: str, address: str) -> str:
    """Ask until the service serves or patience ends."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = grpc_state(name, address) if protocol == "grpc" else http_state(address)
        if answer == "SERVING" or time.monotonic() > deadline:
            return answer
        time.sleep(1)


def main() -> int:
    """Print a line for each service; 0 when all serve."""
    failed = 0
    for line in os.environ["TARGETS"].strip().splitlines():
        protocol, name, address = line.split()
        answer = state(protocol, name, address)
        failed += answer != "SERVING"
        print(f"{answer:<12} {name:<32} {address}", flush=True)  # noqa: T201 - the test's log
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
