import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from chassis.errors import DomainError, InvalidArgument, NotFound
from chassis.http.server import Server
from chassis.telemetry.instruments import Telemetry
from shop_cli.control_room import api, jaeger, pages
from shop_cli.control_room.access import access_control
from shop_cli.control_room.room import ControlRoom
from shop_cli.local.ports import HOST

_KINDS = ((NotFound, 404), (InvalidArgument, 400))
_CONFLICT = 409


def create_app(room: ControlRoom) -> Starlette:
    templates = pages.templates(room.sections, room.run.url("storefront"))

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, DomainError)  # noqa: S101 - this handler is registered only for DomainError
        status = next((code for kind, code in _KINDS if isinstance(error, kind)), _CONFLICT)
        described = {"reason": error.reason, "message": error.message}
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(templates.get_template("error.html").render(described), status)
        return JSONResponse(described, status)

    app = Starlette(
        routes=[*api.routes(room), *jaeger.routes(room.telemetry), *pages.routes(room, templates)],
        middleware=access_control(room.run.control_room_port, room.run.token),
        exception_handlers={DomainError: refuse},
    )
    app.router.redirect_slashes = False  # Starlette's redirects would trust the request's Host header
    return app


@contextlib.asynccontextmanager
async def served(room: ControlRoom) -> AsyncIterator[None]:
    server = Server(create_app(room), Telemetry())
    listener = socket.create_server((HOST, room.run.control_room_port))
    serving = asyncio.create_task(server.serve([listener]), name="control room")
    try:
        yield
    finally:
        server.should_exit = True
        await serving
