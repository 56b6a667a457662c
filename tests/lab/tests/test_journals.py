import asyncio

import pytest

from shop_lab.simulation import services
from shop_lab.simulation.clock import VirtualLoop, close
from shop_lab.simulation.faults import Faults
from shop_lab.simulation.journals import PostgresModel, PostgresServer
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
        faults = Faults(seed=1)
        faults.end()
        database = PostgresModel(server, Process("checkout-1"), faults)
        writing = asyncio.create_task(database.write(insert("a"), insert("b")))
        await asyncio.sleep(1.5 * STEP_SECONDS)
        assert server.holders
        server.abort_all()
        await writing
        assert server.holders == {}

    loop = VirtualLoop()
    loop.run_until_complete(abort_between_statements())
    close(loop)
