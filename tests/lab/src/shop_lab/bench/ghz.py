"""ghz, a compiled gRPC client, whose own CPU time disturbs the servers little."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

_INSTALL = "go install github.com/bojand/ghz/cmd/ghz@latest"
_TIMEOUT = "30s"


@dataclass(frozen=True)
class Result:
    """What ghz reports of one run: calls a second, and the milliseconds that each call took."""

    calls_a_second: float
    milliseconds: Sequence[float]


def find_ghz() -> str:
    """Return the path of ghz: on PATH, or where `go install` puts programs. End the program if it is missing."""
    gopath = Path(os.environ.get("GOPATH") or Path.home() / "go").joinpath("bin")
    folders = [os.environ.get("PATH", ""), os.environ.get("GOBIN", ""), str(gopath)]
    program = shutil.which("ghz", path=os.pathsep.join(filter(None, folders)))
    if program is None:
        sys.exit(f"make bench needs ghz: install it with `{_INSTALL}`")
    return program


async def ghz(address: str, method: str, proto: Path, requests: Sequence[Message], in_flight: int) -> Result:
    """Send each request once, in this order, so many of them in flight. End the program unless all calls succeed.

    `proto` is the file that defines the method; its imports are found from its folder's parent.
    """
    with NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([MessageToDict(request, preserving_proto_field_name=True) for request in requests], file)
        file.flush()
        options = ["--insecure", "--proto", str(proto), "-i", str(proto.parent.parent), "--call", method, "-O", "json"]
        options += ["-D", file.name, "-n", str(len(requests)), "-c", str(in_flight), "--timeout", _TIMEOUT]
        child = await asyncio.create_subprocess_exec(find_ghz(), *options, address, stdout=asyncio.subprocess.PIPE)
        report = json.loads((await child.communicate())[0])
    if report["statusCodeDistribution"] != {"OK": len(requests)}:
        sys.exit(f"ghz: {len(requests)} calls, {report['statusCodeDistribution']}: {report['errorDistribution']}")
    return Result(report["rps"], [call["latency"] / 1e6 for call in report["details"]])
