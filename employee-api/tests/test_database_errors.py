"""Any statement may fail, whatever is expected of its constraints."""

from typing import Any

from sqlalchemy import event

from shop_kit.employee_api import PASSWORD, Api, on_each_database

REFUSED = "INSERT INTO refused VALUES (0)"
REQUESTS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/api/auth/register", {"name": "Ada", "email": "ada@x", "password": PASSWORD}),
    ("POST", "/api/auth/login", {"email": "ada@x", "password": PASSWORD}),
    ("POST", "/api/auth/users", {"name": "Bob", "email": "bob@x", "password": PASSWORD}),
    ("POST", "/api/tasks", {"title": "Write it down"}),
    ("PATCH", "/api/tasks/{task}", {"status": "done"}),
    ("POST", "/api/tasks/{task}/comments", {"body": "Done"}),
    *[("GET", f"/api/{path}", None) for path in ("auth/users", "tasks", "tasks/{task}", "activities")],
    ("GET", "/api/tasks/{task}/comments", None),
    ("DELETE", "/api/tasks/{task}", None),
]


@on_each_database
async def test_any_failed_statement_is_a_500(api: Api) -> None:
    await api.execute("CREATE TABLE refused (number INT CHECK (number > 0))")
    task, failing = "", 0

    def fail(_connection: Any, _cursor: Any, text: str, parameters: Any, _context: Any, _many: bool) -> Any:
        nonlocal failing
        failing -= 1
        return (text, parameters) if failing else (REFUSED, ())

    event.listen(api.engine.sync_engine, "before_cursor_execute", fail, retval=True)
    for method, path, body in REQUESTS:
        for number in range(1, 100):
            failing = number
            response = await api.client.request(method, path.format(task=task), json=body)
            if failing > 0:  # it runs fewer statements
                break
            assert response.status_code == 500, (method, path, number, response.text)
        assert response.is_success, (method, path, response.text)
        task = response.json().get("id", "") if path == "/api/tasks" and method == "POST" else task
