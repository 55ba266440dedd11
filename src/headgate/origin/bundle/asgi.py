"""An ASGI application that serves a bundle, or the site inside it.

Files are sent with the server's extension for that where it has one, else in pieces, each read after the one before was
sent. Reads run on the event loop.
"""

import asyncio
import logging
import os
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

from headgate.bundle.files.open_file import file_state
from headgate.bundle.model import Profile
from headgate.origin.bundle.server import BundleServer
from headgate.origin.bundle.snapshot import ReloadingBundle
from headgate.origin.read_ahead import Receive, Scope, Send
from headgate.origin.request_info import field_value
from headgate.origin.response import BodySource, FileSlice, Response

_PIECE_SIZE = 262_144
_PATHSEND = "http.response.pathsend"
_ZEROCOPYSEND = "http.response.zerocopysend"
_log = logging.getLogger("headgate.origin.bundle")


class BundleApp:
    """Serves the bundle at `path`, as `/` and as `/NAME`; with `unpack`, the site inside it instead.

    A file that is replaced is reloaded within a second; if the new one cannot be read, the old one is served on and a
    warning logged. Mounted below a path, that path is `/`. Raises `BundleError` for an invalid bundle, and `OSError`
    for a file that cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], *, unpack: bool = False, profile: Profile = "strict") -> None:
        self._bundle = ReloadingBundle(path, profile=profile, log=_log.warning)
        self._server = BundleServer(self._bundle, unpack=unpack)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the server."""
        if scope["type"] == "http":
            self._bundle.check()
            fields = list(scope["headers"])
            response = self._server.answer(
                scope["method"].encode(), field_value(fields, b"host") or b"", _target(scope), fields
            )
            await self._send(response, scope, receive, send)
        elif scope["type"] == "lifespan":
            await _lifespan(receive, send)
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
        if isinstance(part, FileSlice) and _ZEROCOPYSEND in extensions:
            await send({"type": _ZEROCOPYSEND, "file": part.file.raw, "offset": part.offset, "count": part.length})
        elif isinstance(part, FileSlice) and _PATHSEND in extensions and self._is_whole(part):
            await send({"type": _PATHSEND, "path": self._bundle.absolute})
        else:
            await _stream(part, receive, send)

    def _is_whole(self, part: FileSlice) -> bool:
        """Return whether a part is the whole file, and the path still leads to that file."""
        state = part.file.state
        return file_state(self._bundle.absolute) == state and (part.offset, part.length) == (0, state.size)


async def _stream(part: BodySource, receive: Receive, send: Send) -> None:
    """Send a part in pieces until the client disconnects."""
    disconnected = asyncio.ensure_future(_disconnected(receive))
    try:
        for offset in range(0, part.length, _PIECE_SIZE):
            if disconnected.done():
                return
            size = min(_PIECE_SIZE, part.length - offset)
            # An error reaches the server, which closes the connection before the announced length is reached.
            piece = part.read(offset, offset + size)
            await send({"type": "http.response.body", "body": piece, "more_body": offset + size < part.length})
    finally:
        disconnected.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    kinds: dict[str, Literal["startup", "shutdown"]] = {"lifespan.startup": "startup", "lifespan.shutdown": "shutdown"}
    while True:
        kind = kinds[(await receive())["type"]]
        await send({"type": f"lifespan.{kind}.complete"})
        if kind == "shutdown":
            return


def _target(scope: Scope) -> bytes:
    """Return the path below the mount point, and the query, as sent."""
    path = scope.get("raw_path") or quote(scope["path"]).encode()
    root = (scope.get("root_path") or "").encode()
    if root and (unquote_to_bytes(path) + b"/").startswith(root + b"/"):  # clients may encode it, as in /%7Euser
        path = b"/" + b"/".join(path.split(b"/")[1 + root.count(b"/") :])
    query = scope.get("query_string") or b""
    target = path if path.startswith(b"/") else b"/" + path
    return target + b"?" + query if query else target
