"""Faults of a local shop: they act, compose, end by themselves, and leave nothing behind whatever is killed."""

import asyncio
import difflib
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import typer.testing

from chassis.errors import InvalidArgument, Unavailable
from chassis.rpc import client
from chassis.tls.certificates import Certificates
from shop.ad_pb2 import AdRequest
from shop.ad_pb2_grpc import AdServiceStub
from shop_cli.local.recording import FOLDER
from shop_cli.local.run_file import DATA, Run, locked, published
from shop_cli.local.workspace import root
from shop_kit.running_shop import shop_up
from shop_kit.waiting import wait_until
from shop_lab.incidents import injector, watcher
from shop_lab.incidents.catalogue import Fault
from shop_lab.incidents.commands import faults, incident, parse_duration
from shop_lab.incidents.gameday import gameday
from shop_lab.incidents.local import Local
from shop_lab.incidents.state import Record
from shop_lab.incidents.targets import CannotAct, CannotRestore, NoLaboratory

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADS = "shop.AdService/GetAds"
DIFF = """--- a/ad_service/service.py
+++ b/ad_service/service.py
@@ -1,1 +1,4 @@
"""


class LabShop:
    """A shop with a laboratory, as faults and customers see it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.target = Local(Path(run.folder))

    async def ads(self) -> list[str]:
        """Return the texts of the ads."""
        certificates = Certificates.load(self.run.tls_folder)
        channel = client.channel(self.run.addresses["ad"], "", timeout_seconds=10, certificates=certificates)
        try:
            return [ad.text for ad in (await AdServiceStub(channel).GetAds(AdRequest())).ads]
        finally:
            await channel.close()

    async def start(self, seconds: float, *injections: dict[str, Any]) -> Record:
        return await asyncio.to_thread(injector.start, fault(*injections), self.target, seconds)

    async def undo(self, record: Record) -> None:
        await asyncio.to_thread(injector.undo, record, self.target)

    def injected(self) -> list[str]:
        return [record.token for record in self.target.records()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LabShop]:
    folder = tmp_path_factory.mktemp("shop")
    (left := folder / DATA / "modules" / "ad" / "ad_service").mkdir(parents=True)  # by a shop that was killed
    (left / "__init__.py").write_text("raise SystemExit")
    async with shop_up(folder, "--lab", "--tls", "--postgres") as run:
        yield LabShop(run)


def fault(*injections: dict[str, Any]) -> Fault:
    walk = [{"question": "q", "query": "q", "answer": "a"}]
    effect = {"query": "up", "above": 1, "local": {"figure": "rate", "service": "ad", "above": 1}}
    texts = {"id": "x", "title": "t", "service": "ad", "mitigation": "m"}
    return Fault.model_validate({**texts, "where": ["local"], "walk": walk, "effect": effect, "injections": injections})


def failing(method: str = ADS, action: str = "error:UNAVAILABLE", **more: Any) -> dict[str, Any]:
    return {"mechanism": "failpoint", "service": "ad", "specification": f"{method}={action}", **more}


async def test_two_faults_act_at_once_and_end_one_after_the_other(shop: LabShop) -> None:
    first = await shop.start(60, failing(action="error:NOT_FOUND%1"))
    second = await shop.start(60, failing())
    with pytest.raises(Unavailable):
        await shop.ads()
    await shop.undo(second)
    assert await shop.ads()
    assert shop.injected() == [first.token]
    await shop.undo(first)
    assert shop.injected() == []


async def test_a_fault_ends_by_itself_and_its_record_as_well(shop: LabShop) -> None:
    await shop.start(2, failing())
    with pytest.raises(Unavailable):
        await shop.ads()
    await wait_until(lambda: not shop.injected())
    assert await shop.ads()


@pytest.mark.parametrize(
    ("injection", "message"),
    [
        (
            failing("shop.AdService/Nothing"),
            r"^ad refuses .*: failpoint.specification: this process has no such method",
        ),
        (failing(action="explode"), "a failpoint is name=kill"),
        (failing(pods=1), "^ad runs in 1 processes, which are too few"),
        ({**failing(), "service": "storefront"}, "^storefront has no failpoints"),
        (failing(after=60), "^x takes 60 s to unfold, longer than its 60 s$"),
        ({"mechanism": "object", "target": "deployment/ad", "set": {"spec/replicas": 0}}, "only a shop on a cluster"),
        (
            {"mechanism": "store", "store": "postgresql", "hold": ["SELECT nothing"], "database": "nowhere"},
            "PostgreSQL: ",
        ),
        ({"mechanism": "store", "store": "valkey", "apply": ["CONFIG SET x 1"], "restore": ["PING"]}, "^Valkey: "),
        ({"mechanism": "patch", "service": "ad", "diff": "+++ b/ad_service/none.py"}, "no module ad_service/none.py"),
        ({"mechanism": "patch", "service": "ad", "diff": DIFF}, "the patch does not apply to ad_service/service.py: "),
        ({"mechanism": "patch", "service": "ad", "diff": "x"}, "a patch changes one module"),
    ],
)
async def test_what_cannot_act_is_one_line_and_nothing_is_injected(
    shop: LabShop, injection: dict[str, Any], message: str
) -> None:
    with pytest.raises(CannotAct, match=message) as refused:
        await shop.start(60, failing(action="error:NOT_FOUND"), injection)
    assert "\n" not in str(refused.value)
    assert shop.injected() == []
    assert await shop.ads()


async def test_a_patched_module_is_replaced_and_restored(shop: LabShop) -> None:
    before = await shop.ads()
    record = await shop.start(60, {"mechanism": "patch", "service": "ad", "diff": patch_of_ads()})
    assert set(await shop.ads()) == {"patched"}
    with pytest.raises(CannotAct, match="another fault has replaced ad_service.service.py of ad"):
        await shop.start(60, {"mechanism": "patch", "service": "ad", "diff": patch_of_ads()})
    await shop.undo(record)
    assert sorted(await shop.ads()) == sorted(before)
    assert shop.target.modules("ad") == {}


def patch_of_ads() -> str:
    """Return a diff by which every ad says the same."""
    path = "ad_service/service.py"
    before = (root() / "services/ad/src" / path).read_text().splitlines(keepends=True)
    after = [line.replace("text=ad.text", 'text="patched"') for line in before]
    return "".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"))


async def test_a_transaction_holds_its_lock_until_it_is_ended(shop: LabShop) -> None:
    locks = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND locktype = 'relation' AND granted"
    hold = {"mechanism": "store", "store": "postgresql", "database": "payment"}
    record = await shop.start(60, {**hold, "hold": ["LOCK TABLE charges IN ACCESS EXCLUSIVE MODE"]})
    await wait_until(lambda: shop.target.query("postgresql", "payment", locks) != "0")
    await shop.undo(record)
    await wait_until(lambda: shop.target.query("postgresql", "payment", locks) == "0")


STORES = [
    {
        "store": "postgresql",
        "save": "SELECT datconnlimit FROM pg_database WHERE datname = 'payment'",
        "apply": ["ALTER DATABASE payment CONNECTION LIMIT 99"],
        "restore": ["ALTER DATABASE payment CONNECTION LIMIT {saved}"],
    },
    {
        "store": "valkey",
        "save": "CONFIG GET maxmemory",
        "apply": ["CONFIG SET maxmemory 9000000"],
        "restore": ["CONFIG SET maxmemory {saved}"],
    },
]


@pytest.mark.parametrize("store", STORES, ids=["postgresql", "valkey"])
async def test_a_setting_of_a_store_is_set_back_when_its_time_is_over(shop: LabShop, store: dict[str, Any]) -> None:
    def current() -> str:
        return shop.target.query(store["store"], "postgres", store["save"])

    before = current()
    await shop.start(3, {"mechanism": "store", **store})
    assert current() != before
    await wait_until(lambda: not shop.injected())
    assert current() == before


@pytest.mark.parametrize(("persona", "page"), [("", "/products/"), ("card_tester", "BRAND_NOT_ACCEPTED")])
async def test_further_customers_come_and_are_sent_home(shop: LabShop, persona: str, page: str) -> None:
    record = await shop.start(120, {"mechanism": "load", "rate": 5, "persona": persona})

    def customers() -> list[Path]:
        mark = record.token.encode()
        return [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark in _read(path).split(b"\0")]

    await wait_until(customers)
    log = Path(shop.run.folder) / ".shop" / "log" / "storefront.log"
    await wait_until(lambda: page in log.read_text())
    await shop.undo(record)
    await wait_until(lambda: not customers())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_the_commands_start_list_and_stop_a_fault(shop: LabShop) -> None:
    async def command(*arguments: str) -> tuple[int, str]:
        program = (sys.executable, "-m", "shop_cli", "faults", *arguments)
        process = await asyncio.create_subprocess_exec(*program, cwd=shop.run.folder, stdout=PIPE, stderr=STDOUT)
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()

    status, started = await command("start", "ad-slow", "--for", "1m")
    token = started.split()[0]
    assert (status, shop.injected()) == (0, [token])
    assert token in (await command("list"))[1]
    assert await command("stop", token) == (0, f"undone: {token}\n")
    assert shop.injected() == []


@pytest.mark.parametrize("text", ["0", "2h", "1d", "-1", "", "61m", "1.5m", "²"])
async def test_a_duration_is_a_number_with_a_unit_and_at_most_an_hour(text: str) -> None:
    assert [parse_duration(given) for given in ("90", "90s", "5m", "1h")] == [90, 90, 300, 3600]
    with pytest.raises(InvalidArgument, match="--for"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["incident", "run", "quiet", "--baseline", "nan"], "--baseline"),
        (["gameday", "--minutes", "nan"], "--minutes"),
        (["gameday", "--rate", "nan"], "--rate"),
        (["faults", "start", "quiet"], "FAULT: quiet injects nothing"),
    ],
)
async def test_what_no_fault_can_be_given_is_refused(arguments: list[str], field: str) -> None:
    command, *rest = arguments
    app = {"incident": incident, "gameday": gameday, "faults": faults}[command]
    with pytest.raises(InvalidArgument, match=field):
        typer.testing.CliRunner().invoke(app, rest, catch_exceptions=False)


async def test_what_cannot_be_undone_is_reported_after_all_else_was(tmp_path: Path) -> None:
    target, end = Local(tmp_path), time.time() + 600
    store = {"mechanism": "store", "store": "postgresql", "database": "payment", "token": "a", "restore": ["SELECT 1"]}
    target.save(Record("a", end, [store]))
    target.save(Record("b", end, [{"mechanism": "load", "token": "b"}]))
    with pytest.raises(CannotRestore, match="this shop has no PostgreSQL"):
        injector.restore(target, everything=True)
    assert [record.token for record in target.records()] == ["a"]


async def test_one_incident_or_game_at_a_time(tmp_path: Path) -> None:
    with Local(tmp_path).alone(), pytest.raises(CannotAct, match="another incident or game"), Local(tmp_path).alone():
        pass


async def test_a_recording_ends_when_nothing_is_injected_any_more(tmp_path: Path) -> None:
    (folder := tmp_path / DATA / FOLDER).mkdir(parents=True)
    watcher.main(str(tmp_path))
    assert not folder.exists()


async def test_a_shop_that_is_no_laboratory_is_refused(tmp_path: Path) -> None:
    target = Local(tmp_path)
    with pytest.raises(CannotAct, match="no shop runs in"):
        injector.start(fault(failing()), target, 60)
    refused = pytest.raises(NoLaboratory, match="start it with `shop up --lab`")
    with locked(tmp_path), published(Run(os.getpid(), str(tmp_path))), refused:
        injector.start(fault(failing()), target, 60)


async def test_a_killed_shop_leaves_no_patched_module_behind(shop: LabShop) -> None:
    await shop.start(600, {"mechanism": "patch", "service": "ad", "diff": patch_of_ads()}, failing())
    assert shop.target.modules("ad")
    os.kill(shop.run.pid, signal.SIGKILL)
    await wait_until(lambda: not shop.injected())
    assert shop.target.modules("ad") == {}
