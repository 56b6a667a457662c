import asyncio

import pytest

from shop_lab.simulation import services
from shop_lab.simulation.chances import Chances
from shop_lab.simulation.clock import VirtualLoop, run_to_end
from shop_lab.simulation.journals import PostgresModel, PostgresServer
from shop_lab.simulation.plan import plan
from shop_lab.simulation.processes import Process

# Of a database once the faults have ended.
STEP_SECONDS = 0.0002


def insert(order_id: str) -> tuple[str, dict[str, str]]:
    text = "INSERT INTO outbox (order_id, kind, due_at, failures, reason) VALUES (:order_id, 'email', 0, 0, '')"
    return text, {"order_id": order_id}


@pytest.mark.timeout(20)
def test_a_transaction_that_a_failover_aborts_leaves_no_lock() -> None:
    async def abort_between_statements() -> None:
        server = PostgresServer(services.open_disk("checkout", lambda: 0.0))
        chances = Chances(plan(1), asyncio.get_running_loop().time)
        chances.calm = True
        database = PostgresModel(server, Process("checkout-1"), chances)
        writing = asyncio.create_task(database.write(insert("a"), insert("b")))
        await asyncio.sleep(1.5 * STEP_SECONDS)
        assert server.holders
        server.abort_all()
        await writing
        assert server.holders == {}

    run_to_end(VirtualLoop(), abort_between_statements())
