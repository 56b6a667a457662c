"""Calls every method with every caller's certificate: what ALLOWED_CALLS lists is admitted, the rest refused.

`python callers.py TABLE FOLDER FOREIGN`. TABLE has a line for each service: its addresses, separated by commas, and its
ALLOWED_CALLS. FOLDER has a folder for each caller, with tls.crt, tls.key and ca.crt; its name ends the SPIFFE ID of the
caller, or begins its DNS name. FOREIGN is a folder with a certificate that another authority issued.
Methods are those that the reflection of each address lists. Prints what is wrong, and exits 1 if anything is.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SECONDS = 10
DENIED = grpc.StatusCode.PERMISSION_DENIED


def channel(address: str, files: tuple[bytes, bytes, bytes]) -> grpc.Channel:
    certificate, key, authorities = files
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(authorities, key, certificate))


def read(folder: Path) -> tuple[bytes, bytes, bytes]:
    return tuple((folder / name).read_bytes() for name in ("tls.crt", "tls.key", "ca.crt"))  # type: ignore[return-value]


def methods_of(address: str, caller: Path) -> list[str]:
    """Return the full names of an address's methods, without health and reflection, which every caller may use."""
    with channel(address, read(caller)) as opened:
        grpc.channel_ready_future(opened).result(timeout=60)  # a new pod's network policies take a moment
        database = ProtoReflectionDescriptorDatabase(opened)
        pool = DescriptorPool(database)
        services = [pool.FindServiceByName(name) for name in database.get_services() if name.startswith("shop.")]
        return [f"{service.full_name}/{method.name}" for service in services for method in service.methods]


def call(opened: grpc.Channel, method: str) -> grpc.StatusCode:
    """Call a method with an empty request, which has no effect."""
    try:
        opened.unary_unary(f"/{method}", bytes, bytes)(b"", timeout=SECONDS)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def call_all(caller: Path, methods: dict[str, list[str]]) -> Iterator[tuple[str, str, grpc.StatusCode]]:
    """Yield the caller's name, a method and its status for every method of every address."""
    for address, names in methods.items():
        with channel(address, read(caller)) as opened:
            yield from ((caller.name, name, call(opened, name)) for name in names)


def strangers(folder: Path, foreign: Path) -> Iterator[grpc.ChannelCredentials]:
    """Yield credentials of clients without a certificate, and with one of another authority."""
    authorities = (folder / "ca.crt").read_bytes()
    yield grpc.ssl_channel_credentials(authorities)
    yield grpc.ssl_channel_credentials(
        authorities, (foreign / "tls.key").read_bytes(), (foreign / "tls.crt").read_bytes()
    )


def main(table: Path, folder: Path, foreign: Path) -> int:
    """Print what is wrong and a summary. Return the exit status."""
    callers = sorted(folder.glob("[!.]*"))
    methods: dict[str, list[str]] = {}
    declared: set[tuple[str, str]] = set()
    for line in table.read_text().splitlines():
        addresses, _, allowed = line.partition(" ")
        for address in addresses.split(","):
            if allowed and not address.endswith(":"):
                methods[address] = methods_of(address, callers[0])
        for identity, names in json.loads(allowed or "{}").items():
            declared |= {(identity.rpartition("/")[2].partition(".")[0], name) for name in names}
    with ThreadPoolExecutor(4) as threads:
        statuses = [status for found in threads.map(partial(list_all, methods), callers) for status in found]
    wrong = [status for status in statuses if (status[:2] in declared) is (status[2] is DENIED)]
    counts = Counter(status[:2] in declared for status in statuses)
    for caller, method, status in wrong:
        print(f"WRONG: {caller} {method}: {status.name}")  # noqa: T201
    refused = refused_strangers(callers[0], foreign, methods)
    print(  # noqa: T201
        f"{len(callers)} callers of {sum(map(len, methods.values()))} methods at {len(methods)} addresses: "
        f"{counts[True]} declared and {counts[False]} undeclared calls, {len(wrong)} answered wrongly; "
        f"{refused} of {2 * len(methods)} calls without a certificate of the shop refused"
    )
    return 0 if methods and not wrong and refused == 2 * len(methods) else 1


def list_all(methods: dict[str, list[str]], caller: Path) -> list[tuple[str, str, grpc.StatusCode]]:
    return list(call_all(caller, methods))


def refused_strangers(caller: Path, foreign: Path, methods: dict[str, list[str]]) -> int:
    """Return how many connections of strangers are refused."""
    refused = 0
    for address, names in methods.items():
        for credentials in strangers(caller, foreign):
            with grpc.secure_channel(address, credentials) as opened:
                refused += call(opened, names[0]) is grpc.StatusCode.UNAVAILABLE
    return refused


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:4])))
