"""What an entry of `services` comes to, and what the chart refuses."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "shop"
GRPC = sorted(project.parent.name for project in ROOT.glob("services/[a-z]*/pyproject.toml"))
DIGEST = "sha256:" + "0123456789abcdef" * 4


def container_of(manifests: Any, name: str) -> dict[str, Any]:
    return dict(manifests.one("Deployment", f"shop-{name}")["spec"]["template"]["spec"]["containers"][0])


def environment_of(manifests: Any, name: str) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in container_of(manifests, name)["env"]}


def mebibytes(quantity: str) -> float:
    number, unit = re.fullmatch(r"([0-9.]+)(Mi|Gi)", quantity).groups()  # type: ignore[union-attr]
    return float(number) * (1024 if unit == "Gi" else 1)


def cores(quantity: str) -> float:
    return float(quantity.removesuffix("m")) / (1000 if quantity.endswith("m") else 1)


def test_a_call_gives_the_callee_s_address(render: Any, values: dict[str, Any]) -> None:
    manifests = render()
    for name, service in values["services"].items():
        addresses = {key: value for key, value in environment_of(manifests, name).items() if key.endswith("_ADDR")}
        called = (service or {}).get("calls", [])
        assert addresses == {f"{callee.upper().replace('-', '_')}_ADDR": f"shop-{callee}:50051" for callee in called}


def test_an_unknown_callee_fails_the_render(render: Any) -> None:
    with pytest.raises(ValueError, match=r'services\.ad\.calls: there is no service "basket"'):
        render({"services": {"ad": {"calls": ["basket"]}}})


def test_a_callee_that_is_left_out_fails_the_render(render: Any) -> None:
    with pytest.raises(ValueError, match=r'services\.checkout\.calls: there is no service "email"'):
        render({"services": {"email": None}})


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 2},
        {"services": {"cart": {"replica": 2}}},
        {"services": {"cart": {"replicas": -1}}},
        {"services": {"cart": {"protocol": "thrift"}}},
        {"services": {"cart": {"image": {"digest": "sha256:short"}}}},
        {"services": {"Cart": {}}},
        {"services": {"cart": {"env": {"lower": "x"}}}},
        {"telemetry": {"sampleRatio": 2}},
        {"logLevel": "loud"},
        {"postgresql": {"persistence": {"size": "much"}}},
    ],
    ids=json.dumps,
)
def test_values_that_the_schema_does_not_know_fail_the_render(helm: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^shop:\n- at '"):
        helm("validate_schema", values=wrong)


def test_the_schema_accepts_every_file_of_the_matrix(helm: Any, matrix_values: dict[str, Any]) -> None:
    helm("validate_schema", values=matrix_values)


def test_a_long_release_name_is_refused(render: Any) -> None:
    with pytest.raises(ValueError, match="longer than 30 characters"):
        render(name="a" * 31)


@pytest.mark.parametrize("name", GRPC)
def test_grpc_probes_ask_readiness_by_service_and_liveness_of_the_process(render: Any, name: str) -> None:
    container = container_of(render(), name)
    full_name = f"shop.{name.title().replace('-', '')}Service"
    assert container["readinessProbe"]["grpc"] == {"port": 50051, "service": full_name}
    assert container["livenessProbe"]["grpc"] == {"port": 50051, "service": "liveness"}
    assert container["startupProbe"]["grpc"] == {"port": 50051, "service": "liveness"}


def test_every_probe_has_one_handler(render: Any, matrix_values: dict[str, Any]) -> None:
    for _, pod in render(matrix_values).pod_templates():
        for container in pod["spec"]["containers"]:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert len({"grpc", "httpGet", "exec", "tcpSocket"} & set(container.get(probe, {"exec": 0}))) == 1


def test_http_probes_ask_the_api_s_own_endpoints(render: Any) -> None:
    container = container_of(render(), "employee-api")
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8000}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 8000}


@pytest.mark.parametrize("name", GRPC)
def test_grpc_services_are_headless_and_keep_their_port(render: Any, name: str) -> None:
    manifests = render()
    service = manifests.one("Service", f"shop-{name}")["spec"]
    (port,) = service["ports"]
    assert service["clusterIP"] == "None"
    assert port["port"] == container_of(manifests, name)["ports"][0]["containerPort"] == 50051
    assert port["appProtocol"] == "kubernetes.io/h2c"


def test_a_pod_has_time_for_its_whole_shutdown(render: Any, matrix_values: dict[str, Any]) -> None:
    manifests = render(matrix_values)
    for made in manifests.all("Deployment"):
        pod = made["spec"]["template"]["spec"]
        variables = {variable["name"]: variable.get("value") for variable in pod["containers"][0].get("env", [])}
        if "GRACE_SECONDS" in variables:
            sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
            needed = sleep + float(variables["DRAIN_SECONDS"]) + float(variables["GRACE_SECONDS"])
            assert pod["terminationGracePeriodSeconds"] > needed


def test_a_stopping_pod_serves_until_nobody_knows_its_address(render: Any) -> None:
    dns_is_behind_seconds = 30
    manifests = render()
    for name in GRPC:
        variables = environment_of(manifests, name)
        sleep = container_of(manifests, name)["lifecycle"]["preStop"]["sleep"]["seconds"]
        # gRPC renews a connection up to a tenth later than it is told to.
        assert sleep > dns_is_behind_seconds + 1.1 * float(variables["MAX_CONNECTION_AGE_SECONDS"])


def test_the_tag_is_the_chart_s_app_version(render: Any) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert container_of(render(), "cart")["image"] == f"docker.io/shop/cart:{chart['appVersion']}"


def test_a_service_s_own_tag_wins_over_the_shared_one(render: Any) -> None:
    manifests = render({"image": {"tag": "1"}, "services": {"cart": {"image": {"tag": "2"}}}})
    assert container_of(manifests, "cart")["image"] == "docker.io/shop/cart:2"
    assert container_of(manifests, "ad")["image"] == "docker.io/shop/ad:1"


def test_a_digest_wins_over_every_tag(render: Any) -> None:
    manifests = render({"image": {"tag": "1"}, "services": {"cart": {"image": {"tag": "2", "digest": DIGEST}}}})
    assert container_of(manifests, "cart")["image"] == f"docker.io/shop/cart@{DIGEST}"


def test_stores_are_pinned_by_digest(render: Any) -> None:
    for made in render().all("StatefulSet"):
        assert "@sha256:" in made["spec"]["template"]["spec"]["containers"][0]["image"]


def test_an_autoscaler_owns_the_number_of_pods(render: Any) -> None:
    manifests = render({"services": {"cart": {"autoscaling": {"enabled": True}}}})
    assert "replicas" not in manifests.one("Deployment", "shop-cart")["spec"]
    assert manifests.one("HorizontalPodAutoscaler", "shop-cart")["spec"]["minReplicas"] == 2
    assert manifests.one("Deployment", "shop-ad")["spec"]["replicas"] == 1
    assert not manifests.has("HorizontalPodAutoscaler", "shop-ad")


def test_false_and_zero_win_over_a_default(render: Any) -> None:
    values = {
        "defaults": {"autoscaling": {"enabled": True}, "shutdown": {"drainSeconds": 9}},
        "services": {"ad": {"autoscaling": {"enabled": False}, "shutdown": {"drainSeconds": 0}, "replicas": 0}},
    }
    manifests = render(values)
    assert manifests.one("Deployment", "shop-ad")["spec"]["replicas"] == 0
    assert environment_of(manifests, "ad")["DRAIN_SECONDS"] == "0"
    assert environment_of(manifests, "cart")["DRAIN_SECONDS"] == "9"


@pytest.mark.parametrize(("replicas", "expected"), [(1, False), (2, True)])
def test_a_disruption_budget_comes_with_the_second_pod(render: Any, replicas: int, expected: bool) -> None:
    manifests = render({"services": {"ad": {"replicas": replicas}}})
    assert manifests.has("PodDisruptionBudget", "shop-ad") is expected


@pytest.mark.parametrize("more", [{"replicas": 2}, {"autoscaling": {"enabled": True}}], ids=json.dumps)
@pytest.mark.parametrize("name", ["payment", "checkout", "employee-api"])
def test_a_sqlite_file_with_two_pods_fails_the_render(render: Any, name: str, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"services\.{name}\.replicas: a SQLite file serves one pod"):
        render({"postgresql": {"enabled": False}, "services": {name: more}})


def test_carts_in_memory_with_two_pods_fail_the_render(render: Any) -> None:
    with pytest.raises(ValueError, match=r"services\.cart\.replicas: what is kept in memory serves one pod"):
        render({"valkey": {"enabled": False}, "services": {"cart": {"replicas": 2}}})


def test_a_sqlite_file_lies_in_a_volume_that_outlives_its_pod(render: Any) -> None:
    manifests = render({"postgresql": {"enabled": False}})
    deployment = manifests.one("Deployment", "shop-payment")["spec"]
    assert environment_of(manifests, "payment")["DATABASE_URL"] == "sqlite:////data/payment.db"
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "shop-payment"}} in (
        deployment["template"]["spec"]["volumes"]
    )
    assert deployment["strategy"] == {"type": "Recreate"}
    claim = manifests.one("PersistentVolumeClaim", "shop-payment")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_an_external_database_needs_a_secret_of_one_s_own(render: Any) -> None:
    with pytest.raises(ValueError, match=r"services\.checkout\.existingSecret: an external database needs"):
        render({"postgresql": {"enabled": False}, "externalDatabase": {"host": "db"}})


def test_routes_without_a_gateway_fail_the_render(render: Any) -> None:
    with pytest.raises(ValueError, match=r"gateway\.parentRefs"):
        render({"gateway": {"enabled": True}})


def test_every_database_user_has_a_role_whose_password_both_sides_read(render: Any) -> None:
    manifests = render()
    server = manifests.one("StatefulSet", "shop-postgresql")["spec"]["template"]["spec"]["containers"][0]
    variables = {variable["name"]: variable for variable in server["env"]}
    assert variables["ROLES"]["value"] == "checkout employee_api payment"
    for name in ("checkout", "payment", "employee-api"):
        role = name.replace("-", "_")
        (password,) = [v for v in container_of(manifests, name)["env"] if v["name"] == "PGPASSWORD"]
        assert password["valueFrom"] == variables[f"{role}_PASSWORD"]["valueFrom"]
        url = environment_of(manifests, name)["DATABASE_URL"]
        assert url == f"postgresql://{role}@shop-postgresql:5432/{role}"


def test_databases_are_migrated_before_their_service_starts(render: Any) -> None:
    manifests = render()
    for name in ("checkout", "payment", "employee-api"):
        spec = manifests.one("Deployment", f"shop-{name}")["spec"]["template"]["spec"]
        (migrate,) = spec["initContainers"]
        assert migrate["args"] == ["migrate"]
        assert (migrate["image"], migrate["env"]) == (spec["containers"][0]["image"], spec["containers"][0]["env"])


def test_carts_are_on_disk_before_a_call_is_answered(render: Any) -> None:
    (container,) = render().one("StatefulSet", "shop-valkey")["spec"]["template"]["spec"]["containers"]
    options = dict(itertools.pairwise(container["args"]))
    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] == "always"


def test_secrets_are_random_and_outlive_the_release(render: Any) -> None:
    secrets = render().all("Secret")
    found = [value for secret in secrets for value in secret["data"].values()]
    assert {secret["metadata"]["name"] for secret in secrets} == {
        f"shop-{name}" for name in ("checkout", "employee-api", "payment", "postgresql", "valkey")
    }
    assert len(set(found)) == len(found) == 7
    assert all(len(value) >= 40 for value in found)
    assert all(made["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for made in secrets)


def test_an_existing_secret_is_used_and_none_is_made(render: Any) -> None:
    manifests = render({"services": {"payment": {"existingSecret": "mine"}}, "valkey": {"existingSecret": "theirs"}})
    (key,) = [v for v in container_of(manifests, "payment")["env"] if v["name"] == "HMAC_KEY"]
    (password,) = [v for v in container_of(manifests, "cart")["env"] if v["name"] == "VALKEY_PASSWORD"]
    assert key["valueFrom"]["secretKeyRef"]["name"] == "mine"
    assert password["valueFrom"]["secretKeyRef"]["name"] == "theirs"
    assert not manifests.has("Secret", "shop-payment")
    assert not manifests.has("Secret", "shop-valkey")


def test_no_secret_stands_in_a_manifest_in_the_clear(render: Any) -> None:
    manifests = render({"observability": {"enabled": True}})
    values = {value for secret in manifests.all("Secret") for value in secret["data"].values()}
    rest = json.dumps([made for made in manifests.objects if made["kind"] != "Secret"])
    assert not [value for value in values if value in rest]


def test_a_data_file_lies_over_the_service_s_own(render: Any) -> None:
    files = {"CATALOG_FILE": {"name": "products.json", "content": "{}"}}
    manifests = render({"services": {"product-catalog": {"files": files}}})
    assert environment_of(manifests, "product-catalog")["CATALOG_FILE"] == "/etc/shop/products.json"
    assert manifests.one("ConfigMap", "shop-product-catalog")["data"] == {"products.json": "{}"}
    mounts = container_of(manifests, "product-catalog")["volumeMounts"]
    assert {"name": "files", "mountPath": "/etc/shop", "readOnly": True} in mounts


def test_telemetry_is_off_until_it_has_somewhere_to_go(render: Any) -> None:
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in environment_of(render(), "cart")
    on = environment_of(render({"observability": {"enabled": True}}), "cart")
    assert on["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://shop-otel-collector:4317"
    own = environment_of(render({"telemetry": {"endpoint": "http://mine:4317"}}), "cart")
    assert own["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://mine:4317"


def test_exposed_services_are_in_the_grpc_route_and_others_are_not(render: Any, values: dict[str, Any]) -> None:
    manifests = render({"gateway": {"enabled": True, "parentRefs": [{"name": "public"}]}})
    rules = manifests.one("GRPCRoute", "shop-shop")["spec"]["rules"]
    backends = [rule["backendRefs"][0]["name"].removeprefix("shop-") for rule in rules]
    exposed = [name for name in GRPC if (values["services"][name] or {}).get("exposed")]
    assert sorted(backends) == sorted(exposed)
    assert not {"payment", "email"} & set(backends)
    assert manifests.has("HTTPRoute", "shop-employee-api")


def requested(manifests: Any, names: list[str], kind: str) -> list[dict[str, str]]:
    return [container_of(manifests, name)["resources"][kind] for name in names]


def test_services_request_60_mebibytes_and_0_06_cores_on_average(render: Any) -> None:
    requests = requested(render(), [*GRPC, "employee-api"], "requests")
    assert sum(mebibytes(request["memory"]) for request in requests) <= 60 * len(requests)
    assert sum(cores(request["cpu"]) for request in requests) <= 0.06 * len(requests)


def test_everything_with_observability_fits_a_node_of_four_gibibytes(render: Any) -> None:
    manifests = render({"observability": {"enabled": True}})
    containers = list(
        itertools.chain.from_iterable(
            made["spec"]["template"]["spec"]["containers"]
            for made in [*manifests.all("Deployment"), *manifests.all("StatefulSet")]
        )
    )
    requests = sum(mebibytes(container["resources"]["requests"]["memory"]) for container in containers)
    limits = sum(mebibytes(container["resources"]["limits"]["memory"]) for container in containers)
    assert requests <= 1.5 * 1024
    assert limits <= 3.75 * 1024
    assert sum(cores(container["resources"]["requests"]["cpu"]) for container in containers) <= 1.5


def test_the_notes_place_an_order_through_port_forwards(render: Any) -> None:
    notes = render(namespace="there").notes
    for line in (
        "kubectl --namespace there port-forward service/shop-cart 50051:50051",
        "localhost:50051 shop.CartService/AddItem",
        "localhost:50058 shop.CheckoutService/PlaceOrder",
        "helm test --namespace there shop",
        "existingSecret",
    ):
        assert line in notes


def test_the_notes_leave_out_what_is_not_there(render: Any) -> None:
    notes = render({"services": {"email": None, "checkout": None, "employee-api": None}}).notes
    assert "port-forward" not in notes
    assert "outbox" not in notes
