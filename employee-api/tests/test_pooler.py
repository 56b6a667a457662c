import asyncio

from chassis.sql.migrate import migrate
from employee_api.database import MIGRATIONS
from shop_kit.employee_api import Api, Clock, api_starter
from shop_kit.postgres_relay import TransactionPooler

TASKS = 8  # psycopg would prepare a statement that a connection repeats so often


async def test_every_operation_runs_in_any_session_of_a_pooler(postgres_url: str, clock: Clock) -> None:
    async with TransactionPooler(postgres_url) as pooler:
        await asyncio.to_thread(migrate, pooler.url(), MIGRATIONS)
        async with api_starter(pooler.url(), clock)() as api:
            await asyncio.gather(use(api), use(api))
            export = await api.client.get("/api/export/tasks?tz=Europe/Berlin")
    assert export.text.count("\r\n") == 1 + 2 * TASKS


async def use(api: Api) -> None:
    user = await api.add_user()
    for _ in range(TASKS):
        task = await api.add_task(assignee_id=user["id"])
        response = await api.client.patch(f"/api/tasks/{task['id']}", json={"status": "done"})
        assert response.status_code == 200
        assert (await api.client.get("/api/tasks?q=task")).status_code == 200
