import asyncio

import pytest

from shop_lab.simulation import services
from shop_lab.simulation.clock import VirtualLoop, run_to_end
from shop_lab.simulation.disk import Disk
from shop_lab.simulation.journals import PostgresModel, PostgresServer
from shop_lab.simulation.processes import Process

STEP_SECONDS = 0.01


class FixedLatencies:
    def seconds(self, _step: str) -> float:
        return STEP_SECONDS

    def is_down(self) -> bool:
        return False

    def loses_reply(self, _step: str) -> bool:
        return False


def insert(order_id: str) -> tuple[str, dict[str, str]]:
    text = "INSERT INTO outbox (order_id, kind, due_at, failures, reason) VALUES (:order_id, 'email', 0, 0, '')"
    return text, {"order_id": order_id}


@pytest.mark.timeout(20)
def test_a_transaction_that_a_failover_aborts_leaves_no_lock() -> None:
    async def abort_between_statements() -> None:
        server = PostgresServer(Disk(services.journal_schema(), lambda: 0.0))
        database = PostgresModel(server, Process("checkout-1"), FixedLatencies())
        writing = asyncio.create_task(database.write(insert("a"), insert("b")))
        await asyncio.sleep(1.5 * STEP_SECONDS)
        assert server.holders
        server.abort_all()
        await writing
        assert server.holders == {}

    run_to_end(VirtualLoop(), abort_between_statements())
