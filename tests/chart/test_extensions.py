"""What an entry in `services` can add to its pods: scheduling, labels, volumes, containers."""

from typing import Any

import pytest


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


def test_pods_spread_over_nodes_and_zones_unless_constraints_are_replaced_or_removed(render: Any) -> None:
    own = {
        "maxSkew": 2,
        "topologyKey": "rack",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"team": "orders"}},
    }
    scheduling = {"checkout": [own], "cart": []}
    services = {name: {"scheduling": {"topologySpreadConstraints": given}} for name, given in scheduling.items()}
    manifests = render({"services": services})
    found = manifests.pod("ad")["spec"]["topologySpreadConstraints"]
    labels = {"app.kubernetes.io/name": "ad", "app.kubernetes.io/instance": "shop"}
    assert [each["topologyKey"] for each in found] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert all(each["labelSelector"] == {"matchLabels": labels} for each in found)
    assert manifests.pod("checkout")["spec"]["topologySpreadConstraints"] == [own]
    assert "topologySpreadConstraints" not in manifests.pod("cart")["spec"]


DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
OWN_SECURITY = {"readOnlyRootFilesystem": False}
VOLUME, MOUNT = {"name": "cache", "emptyDir": {}}, {"name": "cache", "mountPath": "/var/cache/shop"}
ENTRY = {
    "podLabels": {"team": "orders"},
    "podAnnotations": {"example.com/owner": "orders"},
    "serviceAccount": {"annotations": {"example.com/role": "orders"}},
    "volumes": [VOLUME],
    "volumeMounts": [MOUNT],
    "sidecars": [
        {"name": "proxy", "image": "proxy:1"},
        {"name": "own", "image": "x:1", "securityContext": OWN_SECURITY},
    ],
    "initContainers": [{"name": "warm-up", "image": "warm-up:1", "restartPolicy": "Always"}],
}


@pytest.fixture(scope="module")
def extended(render: Any) -> Any:
    named = {**ENTRY, "podAnnotations": {DEFAULT_CONTAINER: "proxy"}}
    return render({"services": {"checkout": ENTRY, "ad": named}})


def test_labels_and_annotations_are_added_to_the_pods_and_the_account(extended: Any) -> None:
    metadata = extended.pod("checkout")["metadata"]
    assert metadata["labels"].items() >= {"team": "orders", "app.kubernetes.io/name": "checkout"}.items()
    assert metadata["annotations"] == {DEFAULT_CONTAINER: "checkout", "example.com/owner": "orders"}
    assert extended.pod("ad")["metadata"]["annotations"] == {DEFAULT_CONTAINER: "proxy"}
    account = extended.one("ServiceAccount", "shop-checkout")["metadata"]
    assert account["annotations"] == {"example.com/role": "orders"}
    assert "annotations" not in extended.one("ServiceAccount", "shop-cart")["metadata"]


def test_volumes_are_mounted_in_the_service_and_its_migration(extended: Any) -> None:
    spec = extended.pod("checkout")["spec"]
    assert VOLUME in spec["volumes"]
    for container in (spec["containers"][0], spec["initContainers"][-1]):
        assert MOUNT in container["volumeMounts"]


def test_sidecars_and_init_containers_stand_beside_the_chart_s_with_its_security_or_their_own(extended: Any) -> None:
    for name, migration in (("checkout", ["migrate"]), ("ad", [])):
        spec = extended.pod(name)["spec"]
        service, proxy, own = spec["containers"]
        assert [service["name"], proxy["name"], own["name"]] == [name, "proxy", "own"]
        assert [container["name"] for container in spec["initContainers"]] == ["warm-up", *migration]
        assert spec["initContainers"][0]["restartPolicy"] == "Always"
        assert proxy["securityContext"] == service["securityContext"]
        assert own["securityContext"] == OWN_SECURITY
