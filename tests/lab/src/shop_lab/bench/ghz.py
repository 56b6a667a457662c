"""Drives gRPC calls with ghz, a compiled client, so that the client's own CPU time disturbs the servers little."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import NamedTemporaryFile
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

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


def find() -> str:
    """Return the path of ghz: on PATH, or where `go install` puts programs. End the program if it is missing."""
    gopath = Path(os.environ.get("GOPATH") or Path.home() / "go").joinpath("bin")
    folders = [os.environ.get("PATH", ""), os.environ.get("GOBIN", ""), str(gopath)]
    program = shutil.which("ghz", path=os.pathsep.join(filter(None, folders)))
    if program is None:
        sys.exit(f"make bench needs ghz: install it with `{_INSTALL}`")
    return program


async def run(address: str, method: str, requests: Sequence[Message], in_flight: int, proto: Path) -> Result:
    """Send each request once. End the program unless all calls succeed.

    Args:
        address: of the server.
        method: such as `shop.CheckoutService.PlaceOrder`.
        requests: in this order.
        in_flight: how many calls run at once.
        proto: the file that defines the method; its imports are found from its folder's parent.
    """
    with NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([MessageToDict(each, preserving_proto_field_name=True) for each in requests], file)
        file.flush()
        options = ["--insecure", "--proto", str(proto), "-i", str(proto.parent.parent), "--call", method, "-O", "json"]
        options += ["-D", file.name, "-n", str(len(requests)), "-c", str(in_flight), "--timeout", _TIMEOUT]
        before = _children_cpu_seconds()
        child = await asyncio.create_subprocess_exec(find(), *options, address, stdout=asyncio.subprocess.PIPE)
        output = (await child.communicate())[0]
    return parse(json.loads(output), len(requests), _children_cpu_seconds() - before)


def parse(report: dict[str, Any], calls: int, client_cpu_seconds: float) -> Result:
    """Return the figures of ghz's JSON report. End the program unless all calls succeeded."""
    if report["statusCodeDistribution"] != {"OK": calls}:
        sys.exit(f"ghz: {calls} calls, {report['statusCodeDistribution']}: {report['errorDistribution']}")
    return Result(report["rps"], [each["latency"] / 1e6 for each in report["details"]], client_cpu_seconds)


def _children_cpu_seconds() -> float:
    """Return the CPU time of this process's children that have ended."""
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
