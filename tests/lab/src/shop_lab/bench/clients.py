"""Compiled clients, whose own CPU time disturbs the servers little: ghz for orders, h2load for one repeated request."""

import asyncio
import json
import os
import re
import shutil
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import NamedTemporaryFile
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from chassis.tls.certificates import Certificates

_INSTALL = "go install github.com/bojand/ghz/cmd/ghz@latest"
_TIMEOUT = "30s"


@dataclass(frozen=True)
class Result:
    """What ghz reports of one run.

    Attributes:
        milliseconds: that each call took, in the order in which they ended.
    """

    calls_a_second: float
    milliseconds: Sequence[float]
    client_cpu_seconds: float


def find_ghz() -> str:
    """Return the path of ghz: on PATH, or where `go install` puts programs. End the program if it is missing."""
    gopath = Path(os.environ.get("GOPATH") or Path.home() / "go").joinpath("bin")
    folders = [os.environ.get("PATH", ""), os.environ.get("GOBIN", ""), str(gopath)]
    program = shutil.which("ghz", path=os.pathsep.join(filter(None, folders)))
    if program is None:
        sys.exit(f"make bench needs ghz: install it with `{_INSTALL}`")
    return program


async def ghz(
    address: str,
    method: str,
    requests: Sequence[Message],
    in_flight: int,
    proto: Path,
    *,
    certificates: Certificates | None = None,
) -> Result:
    """Send each request once. End the program unless all calls succeed.

    Args:
        address: of the server.
        method: such as `shop.CheckoutService.PlaceOrder`.
        requests: in this order.
        in_flight: how many calls run at once.
        proto: the file that defines the method; its imports are found from its folder's parent.
        certificates: of the client; None for plaintext.
    """
    with NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([MessageToDict(each, preserving_proto_field_name=True) for each in requests], file)
        file.flush()
        options = ["--insecure"]
        if certificates is not None:
            files = {"--cacert": "ca.crt", "--cert": "tls.crt", "--key": "tls.key"}
            options = [word for option, name in files.items() for word in (option, str(certificates.folder / name))]
        options += ["--proto", str(proto), "-i", str(proto.parent.parent), "--call", method, "-O", "json"]
        options += ["-D", file.name, "-n", str(len(requests)), "-c", str(in_flight), "--timeout", _TIMEOUT]
        before = _children_cpu_seconds()
        child = await asyncio.create_subprocess_exec(find_ghz(), *options, address, stdout=asyncio.subprocess.PIPE)
        output = (await child.communicate())[0]
    return parse_ghz(json.loads(output), len(requests), _children_cpu_seconds() - before)


def parse_ghz(report: dict[str, Any], calls: int, client_cpu_seconds: float) -> Result:
    """Return the figures of ghz's JSON report. End the program unless all calls succeeded."""
    if report["statusCodeDistribution"] != {"OK": calls}:
        sys.exit(f"ghz: {calls} calls, {report['statusCodeDistribution']}: {report['errorDistribution']}")
    return Result(report["rps"], [each["latency"] / 1e6 for each in report["details"]], client_cpu_seconds)


def _children_cpu_seconds() -> float:
    """Return the CPU time of this process's children that have ended."""
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def find_h2load() -> str:
    """Return the path of h2load. End the program if it is missing."""
    program = shutil.which("h2load")
    if program is None:
        sys.exit("make bench needs h2load (Debian and Ubuntu: apt-get install nghttp2-client)")
    return program


async def h2load(address: str, method: str, request: Message, calls: int) -> float:
    """Call a method with h2load, 64 calls in flight on 4 connections; return calls per second. All must succeed."""
    program = find_h2load()
    body = request.SerializeToString()
    with NamedTemporaryFile() as file:
        file.write(struct.pack(">BI", 0, len(body)) + body)
        file.flush()
        child = await asyncio.create_subprocess_exec(
            *(program, "-n", str(calls), "-c", "4", "-m", "16", "-d", file.name),
            *("-H", "content-type: application/grpc", "-H", "te: trailers", f"http://{address}/{method}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        output = (await child.communicate())[0].decode()
    finished = re.search(r"finished in [^,]+, ([\d.]+) req/s", output)
    if finished is None or f"{calls} succeeded" not in output:
        sys.exit(f"h2load against {method} at {address} failed:\n{output}")
    return float(finished[1])
