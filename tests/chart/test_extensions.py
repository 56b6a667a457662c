"""What an entry in `services` can add to its pods: scheduling, labels, volumes, containers."""

from typing import Any

import pytest


def rendered(render: Any, **entry: Any) -> Any:
    return render({"services": {"checkout": entry}})


def test_a_service_s_scheduling_overrides_that_of_all_pods(render: Any) -> None:
    shared, own = (
        {
            "nodeSelector": {"pods": whose},
            "tolerations": [{"key": whose, "operator": "Exists"}],
            "affinity": {affinity: {}},
            "priorityClassName": whose,
        }
        for whose, affinity in (("all", "podAffinity"), ("own", "podAntiAffinity"))
    )
    manifests = render(
        {"scheduling": shared, "observability": {"enabled": True}, "services": {"checkout": {"scheduling": own}}}
    )
    for name, pod in manifests.pod_templates():
        expected = own if name == "shop-checkout" else shared
        assert {key: pod["spec"][key] for key in expected} == expected, name


def test_pods_spread_over_nodes_and_zones(render: Any) -> None:
    constraints = render().pod("checkout")["spec"]["topologySpreadConstraints"]
    labels = {"app.kubernetes.io/name": "checkout", "app.kubernetes.io/instance": "shop"}
    assert [constraint["topologyKey"] for constraint in constraints] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    assert all(constraint["labelSelector"] == {"matchLabels": labels} for constraint in constraints)


def test_topology_spread_constraints_can_be_replaced_and_removed(render: Any) -> None:
    own = {
        "maxSkew": 2,
        "topologyKey": "rack",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"team": "orders"}},
    }
    manifests = rendered(render, scheduling={"topologySpreadConstraints": [own]})
    assert manifests.pod("checkout")["spec"]["topologySpreadConstraints"] == [own]
    manifests = rendered(render, scheduling={"topologySpreadConstraints": []})
    assert "topologySpreadConstraints" not in manifests.pod("checkout")["spec"]


DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@pytest.mark.parametrize("own", [{"example.com/owner": "orders"}, {DEFAULT_CONTAINER: "proxy"}])
def test_labels_and_annotations_are_added_to_the_pods(render: Any, own: dict[str, str]) -> None:
    metadata = rendered(render, podLabels={"team": "orders"}, podAnnotations=own).pod("checkout")["metadata"]
    assert metadata["labels"]["team"] == "orders"
    assert metadata["labels"]["app.kubernetes.io/name"] == "checkout"
    assert metadata["annotations"] == {DEFAULT_CONTAINER: "checkout", **own}


def test_annotations_are_added_to_the_service_account(render: Any) -> None:
    manifests = rendered(render, serviceAccount={"annotations": {"example.com/role": "orders"}})
    account = manifests.one("ServiceAccount", "shop-checkout")["metadata"]
    assert account["annotations"] == {"example.com/role": "orders"}
    assert "annotations" not in manifests.one("ServiceAccount", "shop-cart")["metadata"]


def test_volumes_are_mounted_in_the_service_and_its_migration(render: Any) -> None:
    volume, mount = {"name": "cache", "emptyDir": {}}, {"name": "cache", "mountPath": "/var/cache/shop"}
    spec = rendered(render, volumes=[volume], volumeMounts=[mount]).pod("checkout")["spec"]
    assert volume in spec["volumes"]
    for container in (spec["containers"][0], *spec["initContainers"]):
        assert mount in container["volumeMounts"]


def test_sidecars_and_init_containers_stand_beside_the_chart_s(render: Any) -> None:
    entry = {
        "sidecars": [{"name": "proxy", "image": "proxy:1"}],
        "initContainers": [{"name": "warm-up", "image": "warm-up:1", "restartPolicy": "Always"}],
    }
    manifests = render({"services": {"checkout": entry, "ad": entry}})
    for service, migration in (("checkout", ["migrate"]), ("ad", [])):
        spec = manifests.pod(service)["spec"]
        assert [container["name"] for container in spec["containers"]] == [service, "proxy"]
        assert [container["name"] for container in spec["initContainers"]] == ["warm-up", *migration]
        assert spec["initContainers"][0]["restartPolicy"] == "Always"


def test_a_sidecar_s_security_context_replaces_the_restricted_one(render: Any) -> None:
    own = {"readOnlyRootFilesystem": False}
    spec = rendered(
        render, sidecars=[{"name": "default", "image": "x:1"}, {"name": "own", "image": "x:1", "securityContext": own}]
    ).pod("checkout")["spec"]
    service, default, custom = spec["containers"]
    assert default["securityContext"] == service["securityContext"]
    assert custom["securityContext"] == own
