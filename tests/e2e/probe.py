"""Connects to every component of a release; exits 1 unless exactly the services in the arguments are reached."""

import os
import socket
import sys
import time

ADDRESSES = {name: value for name, value in os.environ.items() if name.endswith("_ADDR") and ":" in value}
HOSTS = {name.removesuffix("_ADDR").lower().replace("_", "-"): value for name, value in ADDRESSES.items()}
RELEASE = HOSTS["cart"].removesuffix("-cart:50051")
TIMEOUT_SECONDS = 30
OTHERS = {"employee-api": 8000, "postgresql": 5432, "valkey": 6379}


def accepts(address: str) -> bool:
    """Return whether a TCP connection opens within two seconds: a network policy drops packets silently."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def main(expected: set[str]) -> int:
    """Print what is reached; return 0 once it is as expected. Policies apply to a new pod after a moment."""
    addresses = {**HOSTS, **{name: f"{RELEASE}-{name}:{port}" for name, port in OTHERS.items()}}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        reached = {name for name, address in addresses.items() if accepts(address)}
        if reached == expected or time.monotonic() > deadline:
            break
    print(f"reaches {sorted(reached) or 'nothing'} of {len(addresses)}")  # noqa: T201
    return 0 if reached == expected else 1


if __name__ == "__main__":
    sys.exit(main(set(sys.argv[1:]) - {"none"}))
