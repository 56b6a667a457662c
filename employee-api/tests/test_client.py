"""A typed client that is generated from /openapi.json: it works."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from shop_kit.employee_api import LOCAL, PASSWORD, StartApi, serving

CONFIGURATION = "{package_name_override: employee_client, post_hooks: []}"
PROGRAM = """
import os
from employee_client import AuthenticatedClient, Client
from employee_client.api.auth import login
from employee_client.api.tasks import add_task, change_task, get_task
from employee_client.models import Error, LoginInput, Status, TaskInput, TaskOutput, TaskPatch, UserOutput

address = os.environ["ADDRESS"]
credentials = LoginInput(email="grace@example.com", password=os.environ["PASSWORD"])
signed_in = login.sync_detailed(client=Client(address), body=credentials)
assert isinstance(signed_in.parsed, UserOutput)
token = signed_in.headers["set-cookie"].partition("=")[2].partition(";")[0]

with AuthenticatedClient(address, token) as client:
    added = add_task.sync_detailed(client=client, body=TaskInput("Water the plants", status=Status.IN_PROGRESS))
    assert isinstance(added.parsed, TaskOutput)
    task_id, tag = str(added.parsed.id), added.headers["etag"]
    done = change_task.sync(task_id, client=client, body=TaskPatch(status=Status.DONE), if_match=tag)
    assert isinstance(done, TaskOutput) and done.status is Status.DONE
    missing = get_task.sync(signed_in.parsed.id.hex, client=client)
    assert isinstance(missing, Error) and missing.error == "Task not found"
"""


@pytest.mark.long
async def test_a_generated_client_works(start_api: StartApi, tmp_path: Path) -> None:
    async with serving(start_api(auth_mode="enforce", registration="open", **LOCAL)) as (api, address):
        await api.store_user("grace@example.com")
        (tmp_path / "openapi.json").write_text((await api.client.get("/openapi.json")).text)
        (tmp_path / "configuration.yml").write_text(CONFIGURATION)
        files = ["--path", "openapi.json", "--config", "configuration.yml", "--output-path", "employee_client"]
        # A warning is a failure.
        generate = ("openapi-python-client", "generate", "--meta", "none", *files, "--fail-on-warning")
        await output(tmp_path, *generate)
        environment = {"PYTHONPATH": str(tmp_path), "ADDRESS": address, "PASSWORD": PASSWORD}
        assert await output(tmp_path, "python", "-c", PROGRAM, **environment) == ""


async def output(folder: Path, program: str, *arguments: str, **environment: str) -> str:
    """Run a program of the development environment, which must succeed, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name(program),
        *arguments,
        cwd=folder,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, printed
    return printed
