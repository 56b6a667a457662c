"""Serves the style sheet, script and images from memory, under URLs that change with the content."""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chassis.http.negotiation import accepts_gzip

FOLDER = Path(__file__).parent.parent / "static"
_FAR_FUTURE = "public, max-age=31536000, immutable"
_SHORT = "public, max-age=300"


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    compressed: bytes
    media_type: str | None
    version: str


class StaticFiles:
    def __init__(self) -> None:
        self._files = {path.relative_to(FOLDER).as_posix(): _read(path) for path in FOLDER.rglob("*") if path.is_file()}
        self.urls = {name: f"/static/{name}?v={file.version}" for name, file in self._files.items()}

    def picture(self, path: str) -> str:
        """Return the URL for a picture path from the catalog, or the placeholder's URL if there is no such picture."""
        return self.urls.get(path.removeprefix("/static/"), self.urls["placeholder.svg"])

    async def serve(self, request: Request) -> Response:
        file = self._files.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        versioned = request.query_params.get("v") == file.version
        headers = {
            "cache-control": _FAR_FUTURE if versioned else _SHORT,
            "etag": f'"{file.version}"',
            "vary": "accept-encoding",
        }
        if file.version in request.headers.get("if-none-match", ""):  # compressing proxies may add a suffix to ETags
            return Response(status_code=304, headers=headers)
        if accepts_gzip(request.headers):
            headers["content-encoding"] = "gzip"
            return Response(file.compressed, headers=headers, media_type=file.media_type)
        return Response(file.content, headers=headers, media_type=file.media_type)


def _read(path: Path) -> _File:
    content, (media_type, _) = path.read_bytes(), mimetypes.guess_type(path.name)
    return _File(content, gzip.compress(content, mtime=0), media_type, hashlib.sha256(content).hexdigest()[:12])
