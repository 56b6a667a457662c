"""Check that every service of a release is ready. TARGETS has one line `protocol name host:port` per service."""

import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_SECONDS = 60


def open_channel(address: str) -> grpc.Channel:
    """Open a channel, with the certificate in TLS_FOLDER if that is set."""
    if "TLS_FOLDER" not in os.environ:
        return grpc.insecure_channel(address)
    files = [Path(os.environ["TLS_FOLDER"], name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt")]
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(*files))


def grpc_status(name: str, address: str) -> str:
    """Return the health status of a gRPC service, or the status code of the failed check."""
    with open_channel(address) as channel:
        try:
            request = health_pb2.HealthCheckRequest(service=name)
            response = health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)
        except grpc.RpcError as error:
            return str(error.code().name)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


def http_status(address: str) -> str:
    """Return SERVING if an HTTP service is ready, else the error."""
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=5):
            return "SERVING"
    except (urllib.error.URLError, TimeoutError) as error:
        return str(error)


def final_status(protocol: str, name: str, address: str) -> str:
    """Repeat the check until the service serves or the timeout expires; return the last status."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        status = grpc_status(name, address) if protocol == "grpc" else http_status(address)
        if status == "SERVING" or time.monotonic() > deadline:
            return status
        time.sleep(1)


def main() -> int:
    """Print one line per service; return 0 if all serve."""
    failed = 0
    for line in os.environ["TARGETS"].strip().splitlines():
        protocol, name, address = line.split()
        status = final_status(protocol, name, address)
        failed += status != "SERVING"
        print(f"{status:<12} {name:<32} {address}", flush=True)  # noqa: T201 - the test's log
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
