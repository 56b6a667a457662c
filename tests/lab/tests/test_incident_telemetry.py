"""What investigators get of an incident, and the formats of others, from a short run in which payment is slow."""

import asyncio
import csv
import json
import re
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import grpc
import pytest
import yaml

from shop.cart_pb2 import AddItemRequest, CartItem
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_cli.local.run_file import Run
from shop_cli.local.spans import Span, Value
from shop_internal.failpoints_pb2 import Failpoint, SetFailpointRequest
from shop_internal.failpoints_pb2_grpc import FailpointsStub
from shop_kit.running_shop import order_request, shop_up
from shop_kit.waiting import wait_until
from shop_lab.incidents import telemetry
from shop_lab.incidents.catalogue import Fault, find
from shop_lab.incidents.exports import NotExportable, export
from shop_lab.incidents.leaks import find_leaks, texts_in
from shop_lab.incidents.own_time import columns_of
from shop_lab.incidents.record import InjectedFault, Load, ObservedAlert, Plan, Record, Times, Truth
from shop_lab.incidents.recording import read_recording, recording
from shop_lab.incidents.telemetry import Telemetry, TelemetryMissing

SECOND = 10**9
STALL_SECONDS = 0.4
COLUMNS = {
    *("checkout_shop-orders-placed", "checkout_rpc-server-call-duration", "payment_cpu", "payment_mem"),
    *(f"payment_{name}" for name in ("latency-90", "wait", "workload", "error", "silence")),
    "email_latency-90",
}
SLOW_PAYMENT = find("pg-lock").model_copy(
    update={"labels": find("pg-lock").labels.model_copy(update={"rcaeval": "delay"})}
)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    return asyncio.run(_collect(tmp_path_factory.mktemp("shop")))


async def _collect(folder: Path) -> Telemetry:
    async with shop_up(folder, "--lab") as run:
        with recording(run) as recorded:
            await _order(run)
            await wait_until(lambda: _has(recorded, {"checkout_mem", "payment_mem"}))
            async with grpc.aio.insecure_channel(run.addresses["payment-internal"]) as channel:
                stall = f"shop.PaymentService/Charge=stall:{STALL_SECONDS}"
                failpoint = Failpoint(id="1", specification=stall, seconds_to_live=60)
                await FailpointsStub(channel).SetFailpoint(SetFailpointRequest(failpoint=failpoint))
            await _order(run)
            await wait_until(lambda: _has(recorded, COLUMNS))
            return read_recording(recorded, 0, 2**62)


async def _order(run: Run) -> None:
    request, item = order_request(), CartItem(product_id="cast-iron-pan", quantity=1)
    async with grpc.aio.insecure_channel(run.addresses["cart"]) as channel:
        await CartServiceStub(channel).AddItem(AddItemRequest(user_id=request.user_id, item=item))
    async with grpc.aio.insecure_channel(run.addresses["checkout"]) as channel:
        await CheckoutServiceStub(channel).PlaceOrder(request)


def _has(recorded: Path, columns: set[str]) -> bool:
    """Return whether columns were recorded, and the slow call by both its ends if they include one of its own time."""
    try:
        found = read_recording(recorded, 0, 2**62)
    except TelemetryMissing:
        return False
    slow = {span.service for span in found.spans if span.milliseconds >= 1000 * STALL_SECONDS}
    return columns <= set(found.metrics) and (slow >= {"checkout", "payment"} or "payment_latency-90" not in columns)


def test_every_service_has_metrics_by_the_second(collected: Telemetry) -> None:
    services = {name.split("_")[0] for name in collected.metrics}
    assert services >= {
        "ad",
        "cart",
        "checkout",
        "currency",
        "email",
        "payment",
        "product-catalog",
        "shipping",
        "storefront",
    }
    seconds = sorted(collected.metrics["payment_mem"])
    assert max(later - earlier for earlier, later in pairwise(seconds)) <= 2
    assert collected.metrics["checkout_shop-orders-placed"]


def test_logs_belong_to_traces(collected: Telemetry) -> None:
    traces = {span.trace_id for span in collected.spans}
    assert "checkout" in {log.service for log in collected.logs if log.trace_id in traces}


def test_own_time_blames_the_slow_service_and_not_its_caller(collected: Telemetry) -> None:
    slow = 1000 * STALL_SECONDS
    own = {service: max(collected.metrics[f"{service}_latency-90"].values()) for service in ("payment", "checkout")}
    assert own["payment"] >= slow
    assert own["checkout"] < slow
    assert max(span.milliseconds for span in collected.spans if span.service == "checkout") > slow


def test_nothing_names_the_fault(collected: Telemetry, tmp_path: Path) -> None:
    collected.write(tmp_path)
    texts = texts_in(tmp_path)
    assert list(find_leaks(texts, [SLOW_PAYMENT])) == []
    assert [name for name, text in texts.items() for word in ("failpoint", "stall") if word in text.lower()] == []


def test_files_have_what_was_collected(collected: Telemetry, tmp_path: Path) -> None:
    collected.write(tmp_path)
    assert telemetry.read(tmp_path) == collected


@pytest.fixture
def run(collected: Telemetry, tmp_path: Path) -> Path:
    return _recorded(collected, tmp_path / "runs", SLOW_PAYMENT)


def _recorded(
    collected: Telemetry, folder: Path, *faults: Fault, seconds: float = 60, removed_after: float | None = None
) -> Path:
    plan = Plan(faults=tuple(fault.id for fault in faults), seconds=(seconds,) * len(faults), seed=7)
    record = Record(folder, plan, "cluster", "shop")
    collected.write(record.folder / "telemetry")
    applied = collected.spans[len(collected.spans) // 2].started_nanos
    removed = None if removed_after is None else applied + int(removed_after * SECOND)
    times = Times(requested=applied, applied=applied, removed=removed)
    injected = tuple(InjectedFault(fault=fault, seconds=seconds, times=times) for fault in faults)
    alerts = (ObservedAlert(name="ErrorBudgetBurn(place-order)", severity="page", paged=True, fired=applied + SECOND),)
    load = Load(source="command", rate=1, seed=7)
    record.close(
        Truth(id=record.id, plan=plan, where="cluster", versions={}, load=load, faults=injected, alerts=alerts)
    )
    return record.folder


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_rcaeval_reads_a_folder_that_names_service_and_fault(run: Path, tmp_path: Path) -> None:
    folder = export(run, "rcaeval", tmp_path / "out")
    assert folder.name == "shop_payment_delay_1"
    assert export(run, "rcaeval", tmp_path / "out").name == "shop_payment_delay_2"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert {"payment_cpu", "payment_mem", "payment_latency-90", "payment_error", "payment_silence"} <= set(metrics)
    # Its loaders split names at the first underscore, and its methods skip columns with gaps.
    assert {name.count("_") for name in metrics} == {1}
    (seconds,) = {tuple(second for second, _ in points) for points in metrics.values()}
    assert seconds == tuple(range(seconds[0], seconds[-1] + 1))
    assert seconds[0] <= int((folder / "inject_time.txt").read_text()) <= seconds[-1]
    traces = rows_of(folder / "traces.csv")
    assert {"checkout", "payment"} <= {row["serviceName"] for row in traces}
    charge = max(
        (row for row in traces if row["operationName"] == "shop.PaymentService/Charge"),
        key=lambda row: int(row["duration"]),
    )
    assert int(charge["duration"]) >= 1_000_000 * STALL_SECONDS
    assert int(charge["startTime"]) // 1000 == int(charge["startTimeMillis"])
    assert rows_of(folder / "logs.csv")[0].keys() == {
        *("time", "timestamp", "container_name", "message", "level", "req_path", "error")
    }


@pytest.mark.parametrize(("seconds", "removed_after"), [(30, None), (30, 90), (3600, 30)])
def test_a_case_of_rcaeval_ends_with_the_fault(
    seconds: float, removed_after: float | None, collected: Telemetry, tmp_path: Path
) -> None:
    run = _recorded(collected, tmp_path, SLOW_PAYMENT, seconds=seconds, removed_after=removed_after)
    later = 60 * SECOND
    healing = [
        replace(span, started_nanos=span.started_nanos + later, ended_nanos=span.ended_nanos + later)
        for span in collected.spans
    ]
    lasting = {name: values | {max(values) + 60: 1.0} for name, values in collected.metrics.items()}
    replace(collected, spans=collected.spans + healing, metrics=lasting).write(run / "telemetry")
    folder = export(run, "rcaeval", tmp_path / "out")
    end = int((folder / "inject_time.txt").read_text()) + 30
    assert max(int(row["startTime"]) // 10**6 for row in rows_of(folder / "traces.csv")) <= end
    metrics = json.loads((folder / "metrics.json").read_text())
    assert max(second for points in metrics.values() for second, _ in points) <= end


def test_inclusive_durations_are_left_out_of_rcaevals_metrics(run: Path, collected: Telemetry, tmp_path: Path) -> None:
    folder = export(run, "rcaeval", tmp_path / "out")
    assert "checkout_rpc-server-call-duration" in collected.metrics
    assert "checkout_rpc-server-call-duration" not in (folder / "metrics.json").read_text()


def test_itbench_gets_the_cause_its_propagation_and_the_alerts(run: Path, tmp_path: Path) -> None:
    folder = export(run, "itbench", tmp_path / "out")
    assert export(run, "itbench", tmp_path / "out") == folder
    truth = yaml.safe_load((folder / "ground_truth.yaml").read_text())
    assert (truth["apiVersion"], truth["kind"]) == ("itbench.io/v1", "GroundTruth")
    spec = truth["spec"]
    groups = {group["id"]: group for group in spec["groups"]}
    assert [name for name, group in groups.items() if group.get("root_cause")] == ["payment-pod-1"]
    assert all(re.fullmatch(group["filter"][0], "shop-payment-5d9c-x1") for group in [groups["payment-pod-1"]])
    steps = [(step["source"], step["target"]) for step in spec["propagations"]]
    assert steps == [("payment-service-1", "checkout-service-1"), ("checkout-service-1", "storefront-service-1")]
    named = {name for alias in spec["aliases"] for name in alias} | {alert["group_id"] for alert in spec["alerts"]}
    assert named <= set(groups)
    assert spec["fault"][0]["entity"]["group_id"] in groups
    assert spec["fault"][0]["fault_mechanism"] == "Database Table Lock"


def test_openrca_gets_runs_of_a_system_by_date(run: Path, collected: Telemetry, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for each in (run, _recorded(collected, tmp_path / "runs", find("hang-catalog"))):
        export(each, "openrca", out)
        with pytest.raises(NotExportable, match="has this run already"):
            export(each, "openrca", out)
    record, _ = rows_of(out / "record.csv")
    assert (record["level"], record["component"], record["reason"]) == ("service", "payment", "db close")
    assert datetime.fromisoformat(f"{record['datetime']}+00:00").timestamp() == int(record["timestamp"])
    (date,) = (out / "telemetry").iterdir()
    assert date.name == record["datetime"][:10].replace("-", "_")
    spans = rows_of(date / "trace" / "trace_span.csv")
    assert len(spans) == 2 * len(collected.spans)
    assert all(len(row["timestamp"]) == len("1647705600361") for row in spans)
    assert {row["cmdb_id"] for row in rows_of(date / "log" / "log_service.csv")} == {
        log.service for log in collected.logs
    }
    assert {"cpu", "mem", "latency-90"} <= {
        row["kpi_name"] for row in rows_of(date / "metric" / "metric_container.csv")
    }


@pytest.mark.parametrize(
    ("form", "faults", "message"),
    [
        ("rcaeval", ("quiet",), "rcaeval has one fault per run, this one had 0"),
        ("rcaeval", ("ad-slow", "pg-lock"), "rcaeval has one fault per run, this one had 2"),
        ("rcaeval", ("pg-lock",), "rcaeval has no word for the fault of this run"),
        ("itbench", ("quiet",), "itbench has no ground truth of a run without a fault"),
        ("csv", ("ad-slow",), "must be one of rcaeval, itbench, openrca"),
    ],
)
def test_what_a_format_cannot_say_is_one_line(
    collected: Telemetry, tmp_path: Path, form: str, faults: tuple[str, ...], message: str
) -> None:
    folder = _recorded(collected, tmp_path, *map(find, faults))
    with pytest.raises(NotExportable, match=re.escape(message)):
        export(folder, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_without_telemetry_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TelemetryMissing, match="no telemetry: .*spans.jsonl is missing"):
        telemetry.read(tmp_path)


# ---------------------------------------------------------------- own time


def _span(service: str, kind: str, began: int, ended: int, parent: str = "", **changes: object) -> Span:
    attributes: dict[str, Value] = {"rpc.method": "m"} if kind == "CLIENT" else {}
    identifier = f"{service}-{kind}-{began}"
    span = Span(
        service, "", "t", identifier, parent, service, kind, began * SECOND, ended * SECOND, attributes, failed=False
    )
    return replace(span, **changes)  # type: ignore[arg-type]


def test_a_call_that_never_arrives_is_a_wait_for_the_callee() -> None:
    earlier = _span("payment", "SERVER", 0, 1, trace_id="u")
    request = _span("checkout", "SERVER", 2, 9)
    call = _span("checkout", "CLIENT", 3, 8, request.span_id, name="payment", failed=True)
    columns = columns_of([earlier, request, replace(call, failed=True)])
    assert columns["payment_wait"] == {8: 5000.0}
    assert columns["checkout_latency-90"] == {9: 2000.0}
    assert columns["payment_error"][8] == 100
    assert sum(columns["checkout_error"].values()) == 0


def test_parallel_calls_are_not_subtracted_twice_and_statements_are_own_time() -> None:
    request = _span("checkout", "SERVER", 0, 10)
    calls = [_span("checkout", "CLIENT", began, began + 4, request.span_id) for began in (1, 2, 3)]
    statement = _span("checkout", "CLIENT", 8, 9, request.span_id, attributes={"db.system.name": "sqlite"})
    assert columns_of([request, *calls, statement])["checkout_latency-90"] == {10: 4000.0}


def test_silence_rises_when_a_service_stops() -> None:
    spans = [_span("email", "SERVER", began, began + 1) for began in (0, 1)] + [_span("ad", "SERVER", 5, 6)]
    assert columns_of(spans)["email_silence"] == {1: 0, 2: 0, 3: 1, 4: 2, 5: 3, 6: 4}
