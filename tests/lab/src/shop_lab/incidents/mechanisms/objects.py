"""Kubernetes objects: values that are changed and set back, and objects that are created and deleted."""

import json
from functools import partial
from string import Template
from typing import Any

from shop_lab.incidents import upkeep
from shop_lab.incidents.catalogue import ObjectInjection
from shop_lab.incidents.cluster import Cluster, url_of
from shop_lab.incidents.state import Inverse
from shop_lab.incidents.targets import CannotAct, Target


class ObjectMechanism:
    """Changes objects of a release by kubectl."""

    def prepare(self, injection: ObjectInjection, target: Target, token: str, seconds: float) -> Inverse:
        cluster = _cluster(target)
        if injection.create:
            manifest = _manifest(injection, cluster)
            if cluster.exists(manifest):
                raise CannotAct(f"the {manifest['kind']} {manifest['metadata']['name']} exists already")
            return {"changed": [], "created": [url_of(manifest)]}
        changed = []
        for found in cluster.objects(injection.target):
            originals = [_original(found, path, new, injection.target) for path, new in injection.set.items()]
            changed.append({"url": url_of(found), "originals": originals})
        _refuse_overlap(changed, cluster)
        return {"changed": changed, "created": []}

    def act(self, injection: ObjectInjection, target: Target, inverse: Inverse) -> None:
        cluster = _cluster(target)
        if injection.create:
            cluster.create(_manifest(injection, cluster))
        for changed in inverse["changed"]:
            found = cluster.get(changed["url"])
            patch = [operation for path, new in injection.set.items() for operation in upkeep.change(found, path, new)]
            cluster.patch(changed["url"], patch)

    def undo(self, target: Target, inverse: Inverse) -> None:
        cluster = _cluster(target)
        for changed in inverse["changed"]:
            get, patch = partial(cluster.get, changed["url"]), partial(cluster.patch, changed["url"])
            upkeep.set_back(get, patch, changed["originals"])
        for url in inverse["created"]:
            cluster.delete(url)


def _cluster(target: Target) -> Cluster:
    if not isinstance(target, Cluster):
        raise CannotAct("only a shop on a cluster has Kubernetes objects")
    return target


def _manifest(injection: ObjectInjection, cluster: Cluster) -> dict[str, Any]:
    names = {"release": cluster.release, "namespace": cluster.namespace}
    manifest: dict[str, Any] = json.loads(Template(json.dumps(injection.create)).substitute(names))
    manifest["metadata"]["namespace"] = cluster.namespace
    return manifest


def _original(found: Any, path: str, new: Any, target: str) -> dict[str, Any]:
    try:
        patch, original = upkeep.change(found, path, new), upkeep.original(found, path)
    except (ValueError, AttributeError, TypeError) as error:
        raise CannotAct(f"{target} has no {path}: {error}") from error
    if not patch:
        raise CannotAct(f"{target} has this value of {path} already")
    return original


def _refuse_overlap(changed: list[dict[str, Any]], cluster: Cluster) -> None:
    """Two faults may change one object, but not the same values: the second one would save those of the first."""
    taken = [
        (earlier["url"], saved["path"])
        for record in cluster.records()
        for inverse in record.inverses
        if inverse["mechanism"] == "object"
        for earlier in inverse["changed"]
        for saved in earlier["originals"]
    ]
    for one in changed:
        for path in (saved["path"] for saved in one["originals"]):
            for url, other in taken:
                if url == one["url"] and (path.startswith(other) or other.startswith(path)):
                    raise CannotAct(f"another fault has changed {other} of {url.rpartition('/')[2]}")
