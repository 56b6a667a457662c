"""Kubernetes objects, of which values are changed and set back."""

from functools import partial
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
        found = cluster.resource(injection.target)
        originals = [_original(found, path, new, injection.target) for path, new in injection.set.items()]
        _refuse_overlap(url_of(found), [original["path"] for original in originals], cluster)
        return {"changed": [{"url": url_of(found), "originals": originals}]}

    def act(self, injection: ObjectInjection, target: Target, inverse: Inverse) -> None:
        cluster, (changed,) = _cluster(target), inverse["changed"]
        found = cluster.get(changed["url"])
        patch = [operation for path, new in injection.set.items() for operation in upkeep.change(found, path, new)]
        cluster.patch(changed["url"], patch)

    def undo(self, target: Target, inverse: Inverse) -> None:
        cluster = _cluster(target)
        for changed in inverse["changed"]:
            get, patch = partial(cluster.get, changed["url"]), partial(cluster.patch, changed["url"])
            upkeep.set_back(get, patch, changed["originals"])


def _cluster(target: Target) -> Cluster:
    if not isinstance(target, Cluster):
        raise CannotAct("only a shop on a cluster has Kubernetes objects")
    return target


def _original(found: Any, path: str, new: Any, target: str) -> dict[str, Any]:
    try:
        patch, original = upkeep.change(found, path, new), upkeep.original(found, path)
    except (ValueError, AttributeError, TypeError) as error:
        raise CannotAct(f"{target} has no {path}: {error}") from error
    if not patch:
        raise CannotAct(f"{target} has this value of {path} already")
    return original


def _refuse_overlap(url: str, paths: list[str], cluster: Cluster) -> None:
    """Two faults may change one object, but not the same values: the second one would save those of the first."""
    taken = [
        saved["path"]
        for record in cluster.records()
        for inverse in record.inverses
        if inverse["mechanism"] == "object"
        for earlier in inverse["changed"]
        if earlier["url"] == url
        for saved in earlier["originals"]
    ]
    for path in paths:
        for other in taken:
            if path.startswith(other) or other.startswith(path):
                raise CannotAct(f"another fault has changed {other} of {url.rpartition('/')[2]}")
