"""Calls every method from a pod in a mesh: what the mesh's policies declare is admitted, the rest refused by a proxy.

`python mesh_callers.py METHODS POLICIES ACCOUNT`. METHODS has a line `address method` for each method, POLICIES is a
list of Istio's AuthorizationPolicies as JSON, ACCOUNT the service account of this pod; without one it is outside of the
mesh, and no call must arrive. Prints what is wrong, and exits 1 if anything is.
"""

import json
import sys
import time
from itertools import groupby
from pathlib import Path

import grpc
from probe import is_reachable

SECONDS = 10
ADMITTED_WITHIN_SECONDS = 60
BY_PROXY = "RBAC: access denied"


def call(channel: grpc.Channel, method: str) -> tuple[grpc.StatusCode, str]:
    """Call a method with an empty request, which has no effect. Return its status."""
    try:
        channel.unary_unary(f"/{method}", bytes, bytes)(b"", timeout=SECONDS)
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


def is_admitted(address: str, *, in_mesh: bool) -> bool:
    """Return whether the network admits this pod: in the mesh whether it may check health, which all may."""
    if in_mesh:
        with grpc.insecure_channel(address) as channel:
            return call(channel, "grpc.health.v1.Health/Check")[0] is grpc.StatusCode.OK
    return is_reachable(address)


def wait_until_admitted(address: str, *, in_mesh: bool) -> None:
    """Wait for the network's policies, which cover a new pod after a moment."""
    deadline = time.monotonic() + ADMITTED_WITHIN_SECONDS
    while not is_admitted(address, in_mesh=in_mesh):
        if time.monotonic() > deadline:
            sys.exit(f"WRONG: {address} cannot be reached")
        time.sleep(1)


def declared_calls(policies: Path) -> set[tuple[str, str]]:
    """Return the service accounts and methods in the rules of policies."""
    return {
        (principal.rpartition("/")[2], path.removeprefix("/"))
        for policy in json.loads(policies.read_text())["items"]
        for rule in policy["spec"]["rules"]
        for source in rule["from"]
        for principal in source["source"].get("principals", ())
        for to in rule.get("to", ())
        for path in to["operation"]["paths"]
    }


def main(methods: Path, policies: Path, account: str = "") -> int:
    """Print what is wrong and a summary. Return the exit status."""
    declared = declared_calls(policies)
    counts, wrong = {True: 0, False: 0}, 0
    pairs = [line.split() for line in sorted(methods.read_text().splitlines())]
    for address, names in groupby(pairs, lambda pair: pair[0]):
        wait_until_admitted(address, in_mesh=bool(account))
        with grpc.insecure_channel(address) as channel:
            for _, method in names:
                code, details = call(channel, method)
                is_declared = (account, method) in declared
                is_refused = code is grpc.StatusCode.PERMISSION_DENIED and details == BY_PROXY
                is_lost = code is grpc.StatusCode.UNAVAILABLE
                right = not (is_refused or is_lost) if is_declared else is_refused if account else is_lost
                counts[is_declared] += 1
                if not right:
                    wrong += 1
                    print(f"WRONG: {account or 'outside'} {method}: {code.name} {details}")  # noqa: T201
    print(  # noqa: T201
        f"{account or 'outside':<24} {counts[True]:>3} declared and {counts[False]:>3} undeclared calls, "
        f"{wrong} answered wrongly"
    )
    return 0 if pairs and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
