"""Checks network policies from within a pod: exits 1 unless exactly the services in the arguments can be reached.

The port of a service's internal services is `<name>-internal`.

Addresses of services come from <NAME>_ADDR variables, each `<release>-<name>:<port>`.
"""

import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import compress

WAIT_SECONDS = 30
INTERNAL_PORT = 50052
OTHER_PORTS = {"storefront": 8080, "employee-api": 8000, "postgresql": 5432, "valkey": 6379}


def targets() -> dict[str, str]:
    """Return the addresses of all services, of their internal services, and of what is no gRPC service."""
    variables = {name: address for name, address in os.environ.items() if name.endswith("_ADDR") and ":" in address}
    found = {name.removesuffix("_ADDR").lower().replace("_", "-"): address for name, address in variables.items()}
    hosts = {name: address.rpartition(":")[0] for name, address in found.items()}
    release = next(host.removesuffix(f"-{name}") for name, host in hosts.items())
    found |= {name: f"{release}-{name}:{port}" for name, port in OTHER_PORTS.items()}
    return found | {f"{name}-internal": f"{host}:{INTERNAL_PORT}" for name, host in hosts.items()}


def is_reachable(address: str) -> bool:
    """Try to open a TCP connection for two seconds, because policies drop packets silently."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def main(expected: set[str]) -> int:
    """Print what can be reached; wait for the expected set, because policies take a moment to cover a new pod."""
    addresses = targets()
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with ThreadPoolExecutor(len(addresses)) as probes:
            reachable = set(compress(addresses, probes.map(is_reachable, addresses.values())))
        if reachable == expected or time.monotonic() > deadline:
            break
    print(f"reaches {sorted(reachable) or 'nothing'} of {len(addresses)}")  # noqa: T201
    return 0 if reachable == expected else 1


if __name__ == "__main__":
    sys.exit(main(set(sys.argv[1:]) - {"none"}))
