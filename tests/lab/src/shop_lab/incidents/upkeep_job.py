"""Jobs of a laboratory on a cluster, all under the profile `restricted`: upkeep, customers, reconciliation."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shop_lab.incidents.state import Record

_PROGRAM = (Path(__file__).with_name("upkeep.py")).read_text()
_SECURITY = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
_EXTRA_SECONDS = 600


def manifests(
    namespace: str, name: str, record: Record, checkout: Mapping[str, Any], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the Job that restores a record's objects when it expires, and its account, which may change only those.

    It runs in checkout's image; the record is in the Secret of the Job's name.
    """
    metadata = {"name": name, "labels": labels}
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    items: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": _rules(record)},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [subject],
        },
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": _job(name, record, checkout, labels)},
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _rules(record: Record) -> list[dict[str, Any]]:
    return [_rule(changed["url"]) for inverse in record.inverses for changed in inverse.get("changed", ())]


def _rule(url: str) -> dict[str, Any]:
    parts = url.split("/")
    group = "" if parts[1] == "api" else parts[2]
    return {"apiGroups": [group], "resources": [parts[-2]], "resourceNames": [parts[-1]], "verbs": ["get", "patch"]}


def _job(name: str, record: Record, checkout: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    pod = checkout["spec"]["template"]["spec"]
    container = {
        "name": "upkeep",
        "image": pod["containers"][0]["image"],
        "imagePullPolicy": pod["containers"][0]["imagePullPolicy"],
        "command": ["python", "-c", _PROGRAM, "/state/state"],
        "securityContext": _SECURITY,
        "resources": {"requests": {"cpu": "5m", "memory": "24Mi"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [{"name": "state", "mountPath": "/state", "readOnly": True}],
    }
    spec = {
        "serviceAccountName": name,
        "enableServiceLinks": False,
        "securityContext": pod["securityContext"],
        "restartPolicy": "OnFailure",
        "containers": [container],
        "volumes": [{"name": "state", "secret": {"secretName": name}}],
    }
    if "imagePullSecrets" in pod:
        spec["imagePullSecrets"] = pod["imagePullSecrets"]
    deadline = int(record.seconds_left) + _EXTRA_SECONDS
    template = {"metadata": {"labels": dict(labels)}, "spec": spec}
    return {"backoffLimit": 20, "activeDeadlineSeconds": deadline, "template": template}


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
