"""Values of Kubernetes objects by path, and the program of the pod that restores them. The standard library alone.

A path is `spec/template/spec/containers[checkout]/resources/limits/cpu`: `containers[checkout]` is the element of that
name in a list, and `~1` stands for a slash in a key.
"""

import base64
import json
import re
import ssl
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_API = "https://kubernetes.default.svc"
MANAGER = "upkeep"
"""Owns the fields that were changed, until they are set back."""
_RETRY_SECONDS = 2.0
_MISSING = (404, 422)
_SEGMENT = re.compile(r"([^\[\]]+)(?:\[([^\[\]]+)\])?")


def parse(path: str) -> list[tuple[str, bool]]:
    """Return the steps of a path: keys, and names of elements (True). Raise ValueError."""
    steps: list[tuple[str, bool]] = []
    for segment in path.split("/"):
        found = _SEGMENT.fullmatch(segment)
        if found is None:
            raise ValueError(f"{path!r} is no path: {segment!r} is neither key nor key[name]")
        steps.append((found[1].replace("~1", "/"), False))
        if found[2]:
            steps.append((found[2], True))
    return steps


def find(document: Any, path: str) -> tuple[list[str | int], Any, int]:
    """Follow a path; return keys and indexes as far as it exists, the value there, and how many steps are missing."""
    steps, value = parse(path), document
    keys: list[str | int] = []
    for number, (step, is_name) in enumerate(steps):
        if is_name:
            names = [element.get("name") for element in value]
            key: str | int | None = names.index(step) if step in names else None
        elif isinstance(value, dict):
            key = step if step in value else None
        else:
            raise ValueError(f"{path!r} goes through a value that has no keys, at {step!r}")
        if key is None:
            return keys, value, len(steps) - number
        keys, value = [*keys, key], value[key]
    return keys, value, 0


def change(document: Any, path: str, new: Any) -> list[dict[str, Any]]:
    """Return the JSON patch that sets a path to a value, or removes it if the value is None."""
    keys, found, missing = find(document, path)
    if new is None:
        return [] if missing else [_operation("remove", keys)]
    if not missing:
        return [] if found == new else [_operation("replace", keys, new)]
    steps = parse(path)[-missing:]
    for step, is_name in reversed(steps[1:]):
        new = [{"name": step, **new}] if is_name else {step: new}
    step, is_name = steps[0]
    return [
        _operation("add", [*keys, "-"], {"name": step, **new}) if is_name else _operation("add", [*keys, step], new)
    ]


def original(document: Any, path: str) -> dict[str, Any]:
    """Return what sets a path back to its current value: the shortest part of it that is missing is removed."""
    _, value, missing = find(document, path)
    if not missing:
        return {"path": path, "value": value}
    steps = parse(path)
    kept = steps[: len(steps) - missing + 1]
    text = ""
    for step, is_name in kept:
        text += f"[{step}]" if is_name else f"/{step.replace('/', '~1')}"
    return {"path": text.lstrip("/"), "value": None}


def restoring(document: Any, originals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the JSON patch that sets an object's values back."""
    return [operation for saved in originals for operation in change(document, saved["path"], saved["value"])]


def disowning(document: Any) -> list[dict[str, Any]]:
    """Return the JSON patch that leaves an object's fields to their owner: Helm does not change those of others."""
    managers = document["metadata"].get("managedFields", [])
    kept = [found for found in managers if found["manager"] != MANAGER]
    return [] if kept == managers else [_operation("replace", ["metadata", "managedFields"], kept)]


def set_back(
    get: Callable[[], Any], patch: Callable[[list[dict[str, Any]]], Any], originals: list[dict[str, Any]]
) -> None:
    """Set an object's values back, and give up owning them, which only a change without new values does."""
    for difference in (partial(restoring, originals=originals), disowning):
        found = get()
        if found and (operations := difference(found)):
            patch(operations)


def _operation(name: str, keys: list[Any], value: Any = None) -> dict[str, Any]:
    path = "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in keys)
    return {"op": name, "path": path, **({} if name == "remove" else {"value": value})}


def call(method: str, path: str, body: Any = None) -> Any:
    token = (_ACCOUNT / "token").read_text()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json-patch+json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(_API + path, data, headers, method=method)  # noqa: S310 - always https
    context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # authorities of many clusters lack what it requires
    with urllib.request.urlopen(request, timeout=10, context=context) as response:  # noqa: S310 - as above
        return json.load(response)


def restore(inverse: dict[str, Any]) -> None:
    """Set the values of one inverse back. Raise OSError."""
    for changed in inverse["changed"]:
        try:
            url = changed["url"]
            patch = partial(call, "PATCH", f"{url}?fieldManager={MANAGER}")
            set_back(partial(call, "GET", url), patch, changed["originals"])
        except urllib.error.HTTPError as error:
            if error.code not in _MISSING:
                raise


def main(file: str) -> None:
    """Wait until a record expires, then restore, until that has succeeded."""
    record = json.loads(zlib.decompress(base64.b64decode(Path(file).read_text())))
    time.sleep(max(0.0, record["expires"] - time.time()))
    pending = [inverse for inverse in reversed(record["inverses"]) if inverse["mechanism"] in ("object", "patch")]
    while pending:
        try:
            restore(pending[0])
            pending.pop(0)
        except OSError:
            time.sleep(_RETRY_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
