"""Any ASGI application as a source of exchanges: paths are called in this process, with no server and no socket."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from headgate.agent.bundle.fetch import USER_AGENT
from headgate.agent.bundle.intake import Intake, Limits
from headgate.agent.bundle.lifespan import App, Lifespan, Message, Scope
from headgate.bundle.files.spool import CHUNK_SIZE
from headgate.bundle.model import Exchange
from headgate.bundle.sources.selection import normalize_http_url
from headgate.bundle.sources.skipped import MessageCallback, SkipExchange, ignore_message
from headgate.errors import ConfigurationError, FetchError

__all__ = ["acollect_app", "collect_app"]

_IN_MEMORY: Final = 1 << 20
"""Bytes of a body above which it waits on disk."""
_PATIENCE: Final = 60.0
"""Seconds that an application may take for one response."""
_PORTS: Final = {"http": 80, "https": 443}


def collect_app(
    app: App,
    paths: Iterable[str],
    *,
    base_url: str,
    tell: MessageCallback = ignore_message,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> Iterator[Exchange]:
    """Do as `acollect_app` does, where no event loop is running."""
    with asyncio.Runner() as runner:
        exchanges = acollect_app(app, paths, base_url=base_url, tell=tell, limits=limits)
        try:
            while (exchange := runner.run(_next(exchanges))) is not None:
                yield exchange
        finally:
            runner.run(exchanges.aclose())


async def acollect_app(
    app: App,
    paths: Iterable[str],
    *,
    base_url: str,
    tell: MessageCallback = ignore_message,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> AsyncGenerator[Exchange]:
    """Call an ASGI application for each path, and yield the exchanges, redirects as they are.

    A path begins with a slash and may have a query; `base_url` stands before it, and is where the application's root
    is. The application is started and shut down if it supports that. A status of 400 or more is told of and left out;
    `FetchError`, which names the URL, is raised when the application raises or breaks off, when no path gives a
    response, and when there is too much. Raises `ConfigurationError` for what is no path or no base URL.
    """
    targets = [_target(base_url, path) for path in paths]
    intake, first, failed = Intake(limits), "", 0
    async with Lifespan(app) as lifespan:
        for url, scope in targets:
            call = _Call(url, limits.max_body)
            try:
                await call.run(app, {**scope, "state": dict(lifespan.state)})
                exchange = intake.take(url, call.status, call.fields, call.chunks())
            except SkipExchange as error:
                failed += 1
                first = first or f"{url}: {error}"
                tell(f"left out {url}: {error}")
            else:
                yield exchange
            finally:
                call.close()
    if targets and failed == len(targets):
        raise FetchError(f"none of the {failed} paths gave a response to keep; {first}")


class _Call:
    """One request to an application, and its response."""

    def __init__(self, url: str, max_body: int) -> None:
        self.status = 0
        self.fields: list[tuple[str, str]] = []
        self._url = url
        self._left = max_body
        self._body = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by `close`
        self._asked = False
        self._complete = asyncio.Event()

    async def run(self, app: App, scope: Scope) -> None:
        """Call the application; raises `FetchError` where it gives no whole response, `Unfit` for one too large."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await app(scope, self._receive, self._send)
        except TimeoutError as error:
            raise FetchError(f"{self._url}: the application takes more than {_PATIENCE:g} s") from error
        except Exception as error:
            raise FetchError(f"{self._url}: the application raised {type(error).__name__}: {error}") from error
        if not self._complete.is_set():
            raise FetchError(f"{self._url}: the application ended without a whole response")
        if self._left < 0:
            raise SkipExchange("a body of more bytes than are allowed")

    def chunks(self) -> Iterator[bytes]:
        """Yield the body."""
        self._body.seek(0)
        while chunk := self._body.read(CHUNK_SIZE):
            yield chunk

    def close(self) -> None:
        """Let go of the body."""
        self._body.close()

    async def _receive(self) -> Message:
        if self._asked:
            await self._complete.wait()
            return {"type": "http.disconnect"}
        self._asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start" and not self.status:
            self.status = message["status"]
            pairs = message.get("headers", ())
            self.fields = [(bytes(name).decode("latin-1"), bytes(value).decode("latin-1")) for name, value in pairs]
        elif kind == "http.response.body" and self.status and not self._complete.is_set():
            body = message.get("body", b"")
            self._left -= len(body)
            if self._left >= 0:
                self._body.write(body)
            if not message.get("more_body", False):
                self._complete.set()
        elif not self._complete.is_set():
            raise RuntimeError(f"unexpected ASGI message {kind!r}")


def _target(base_url: str, path: str) -> tuple[str, Scope]:
    """Give the URL of a path, and the scope of a request for it."""
    try:
        base = normalize_http_url(base_url)
        url = normalize_http_url(base.partition("?")[0].rstrip("/") + path)
    except SkipExchange as unfit:
        raise ConfigurationError(f"{base_url!r}: {unfit}; give a base URL such as https://example.com/") from None
    if not path.startswith("/"):
        raise ConfigurationError(f"{path!r} is no path; one begins with a slash")
    parts, root = urlsplit(url), urlsplit(base).path.rstrip("/")
    host = parts.hostname or ""
    fields = [("host", parts.netloc), ("user-agent", USER_AGENT), ("accept", "*/*"), ("accept-encoding", "identity")]
    return url, {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": parts.scheme,
        "path": unquote_to_bytes(parts.path).decode("utf-8", "replace"),
        "raw_path": parts.path.encode("ascii"),
        "query_string": parts.query.encode("ascii"),
        "root_path": unquote_to_bytes(root).decode("utf-8", "replace"),
        "headers": [(name.encode(), value.encode("ascii")) for name, value in fields],
        "client": ("127.0.0.1", 0),
        "server": (host, parts.port or _PORTS[parts.scheme]),
    }


async def _next(exchanges: AsyncGenerator[Exchange]) -> Exchange | None:
    return await anext(exchanges, None)
