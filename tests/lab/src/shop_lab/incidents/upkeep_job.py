"""Jobs of a laboratory on a cluster, all under the profile `restricted`: upkeep, customers, reconciliation."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import yaml

from shop_lab.incidents.state import Record

_PROGRAM = Path(__file__).with_name("upkeep.py").read_text()
_MANIFESTS = Template(Path(__file__).with_name("upkeep.yaml").read_text())
_EXTRA_SECONDS = 600


def manifests(
    namespace: str, name: str, record: Record, checkout: Mapping[str, Any], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the Job that restores a record's objects when it expires, and its account."""
    pod = checkout["spec"]["template"]["spec"]
    container = pod["containers"][0]
    values = {
        "name": name,
        "namespace": namespace,
        "labels": labels,
        "rules": [_rule(url) for url in record.changed_objects],
        "deadline": int(record.seconds_left) + _EXTRA_SECONDS,
        "program": _PROGRAM,
        "image": container["image"],
        "imagePullPolicy": container["imagePullPolicy"],
        "imagePullSecrets": pod.get("imagePullSecrets", []),
        "securityContext": pod["securityContext"],
    }
    texts = {key: json.dumps(value) for key, value in values.items()}  # JSON is YAML
    found: dict[str, Any] = yaml.safe_load(_MANIFESTS.substitute(texts))
    return found


def _rule(url: str) -> dict[str, Any]:
    parts = url.split("/")
    group = "" if parts[1] == "api" else parts[2]
    return {"apiGroups": [group], "resources": [parts[-2]], "resourceNames": [parts[-1]], "verbs": ["patch"]}


def customers(
    name: str, deployment: Mapping[str, Any], settings: Mapping[str, str], program: str, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return a Job that sends customers as the load generator of a Deployment does, with other settings.

    A program in Python runs in place of the load generator's own.
    """
    template = copy.deepcopy(deployment["spec"]["template"])
    (container,) = template["spec"]["containers"]
    kept = [variable for variable in container["env"] if variable["name"] not in settings]
    container["env"] = [*kept, *({"name": key, "value": value} for key, value in settings.items())]
    if program:
        container["command"] = ["python", "-c", program]
    for probe in ("readinessProbe", "livenessProbe"):
        container.pop(probe, None)
    template["spec"]["restartPolicy"] = "Never"
    seconds = int(float(settings["DURATION_SECONDS"])) + 60
    spec = {"backoffLimit": 0, "activeDeadlineSeconds": seconds, "ttlSecondsAfterFinished": 60, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": dict(labels)}, "spec": spec}


def with_grace(job: Mapping[str, Any], minutes: float) -> dict[str, Any]:
    """Return a Job of the reconciliation with another grace."""
    changed = copy.deepcopy(dict(job))
    (container,) = changed["spec"]["template"]["spec"]["containers"]
    grace = {"name": "GRACE_MINUTES", "value": f"{minutes:g}"}
    container["env"] = [*(found for found in container["env"] if found["name"] != grace["name"]), grace]
    return changed
