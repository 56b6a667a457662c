"""Tries to reach every part of a release; exits 1 unless exactly the services named on the command line answer."""

import os
import socket
import sys
import time

ADDRESSES = {name: value for name, value in os.environ.items() if name.endswith("_ADDR") and ":" in value}
HOSTS = {name.removesuffix("_ADDR").lower().replace("_", "-"): value for name, value in ADDRESSES.items()}
RELEASE = HOSTS["cart"].removesuffix("-cart:50051")
PATIENCE_SECONDS = 30
OTHERS = {"employee-api": 8000, "postgresql": 5432, "valkey": 6379}


def answers(address: str) -> bool:
    """Tell whether a TCP connection opens; a dropped packet counts as no after two seconds."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def main(expected: set[str]) -> int:
    """Print who answers; 0 once they are the expected ones: a cluster takes a moment to learn of a new pod."""
    addresses = {**HOSTS, **{name: f"{RELEASE}-{name}:{port}" for name, port in OTHERS.items()}}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        reached = {name for name, address in addresses.items() if answers(address)}
        if reached == expected or time.monotonic() > deadline:
            break
    print(f"reaches {sorted(reached) or 'nothing'} of {len(addresses)}")  # noqa: T201
    return 0 if reached == expected else 1


if __name__ == "__main__":
    sys.exit(main(set(sys.argv[1:]) - {"none"}))
