"""An ASGI application that serves a bundle, or the site inside it.

Files go to the agent by the server's own means where it announces some, else in pieces that are read when the one
before is on its way. Reading is done on the event loop, from what the system has in memory more often than not.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal
from urllib.parse import quote

from headgate.bundle.model import Profile
from headgate.origin.bundle.publication import Publication
from headgate.origin.bundle.storefront import Storefront
from headgate.origin.file_slice import BodySource, FileSlice, file_state
from headgate.origin.request_info import field_value
from headgate.origin.response import Response

__all__ = ["BundleApp"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PIECE = 262_144
_SENDS_PATHS = "http.response.pathsend"
_SENDS_PARTS = "http.response.zerocopysend"
_log = logging.getLogger("headgate.origin.bundle")


class BundleApp:
    """Serves the bundle at `path`, as `/` and as `/NAME`; with `unpack`, the site inside it instead.

    A bundle that is replaced is noticed within a second; one that cannot be read leaves what was served before in
    force, and is logged. Mounted below a path, it is that path which is `/`. Raises `BundleError` for a file that is no
    bundle, and `OSError` for one that cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], *, unpack: bool = False, profile: Profile = "strict") -> None:
        self._publication = Publication(path, profile=profile, complain=_log.warning)
        self._storefront = Storefront(self._publication, unpack=unpack)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the server."""
        if scope["type"] == "http":
            self._publication.look()
            fields = list(scope["headers"])
            response = self._storefront.answer(
                scope["method"].encode(), field_value(fields, b"host") or b"", _target(scope), fields
            )
            await self._send(response, scope, receive, send)
        elif scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _send(self, response: Response, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": response.status, "headers": response.fields})
        part = response.source
        if part is None:
            await send({"type": "http.response.body", "body": response.body})
            return
        extensions = scope.get("extensions") or {}
        if not isinstance(part, FileSlice):
            await _stream(part, receive, send)
        elif _SENDS_PARTS in extensions:
            await send({"type": _SENDS_PARTS, "file": part.file.raw, "offset": part.offset, "count": part.length})
        elif _SENDS_PATHS in extensions and self._is_whole(part):
            await send({"type": _SENDS_PATHS, "path": self._publication.absolute})
        else:
            await _stream(part, receive, send)

    def _is_whole(self, part: FileSlice) -> bool:
        """Say whether a part is all of the file, and the file that a server would find at its path now."""
        try:
            now = file_state(self._publication.path)
        except OSError:
            return False
        return now == part.file.state and (part.offset, part.length) == (0, now.size)


async def _stream(part: BodySource, receive: Receive, send: Send) -> None:
    """Send a part in pieces, for as long as there is somebody to send them to."""
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        for offset in range(0, part.length, _PIECE):
            if gone.done():
                return
            size = min(_PIECE, part.length - offset)
            # An error goes to the server, which ends the connection: the length that was promised is not reached.
            piece = part.read(offset, offset + size)
            await send({"type": "http.response.body", "body": piece, "more_body": offset + size < part.length})
    finally:
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _live(receive: Receive, send: Send) -> None:
    kinds: dict[str, Literal["startup", "shutdown"]] = {"lifespan.startup": "startup", "lifespan.shutdown": "shutdown"}
    while True:
        kind = kinds[(await receive())["type"]]
        await send({"type": f"lifespan.{kind}.complete"})
        if kind == "shutdown":
            return


def _target(scope: Scope) -> bytes:
    """Give the path below where the application is mounted, and the query, as sent."""
    path = scope.get("raw_path") or quote(scope["path"]).encode()
    root = quote(scope.get("root_path") or "").encode()
    if root and path.startswith(root):
        path = path[len(root) :]
    query = scope.get("query_string") or b""
    target = path if path.startswith(b"/") else b"/" + path
    return target + b"?" + query if query else target
