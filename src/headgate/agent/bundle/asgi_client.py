"""Call an ASGI application in this process, with no server and no socket."""

from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from headgate.agent.bundle.fetcher import USER_AGENT
from headgate.agent.transports.httpx_library import Client, default_library
from headgate.errors import FetchError

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
App: TypeAlias = Callable[[_Message, _Receive, _Send], Awaitable[None]]


@contextmanager
def asgi_client(app: App) -> Iterator[Client]:
    """Start an ASGI application, and shut it down when the block ends; return a client whose requests it answers.

    For `collect(urls, client=client, courtesy=Courtesy())`. The application is called for every URL, whatever its
    host. An exception in it is a response with status 500. Raises `FetchError` where its startup or shutdown fails,
    and `MissingExtra` without httpx2.
    """
    default_library("calling an ASGI application")
    from starlette.testclient import TestClient

    client = TestClient(_with_lifespan(app), raise_server_exceptions=False, headers={"user-agent": USER_AGENT})
    try:
        client.__enter__()
    except Exception as error:
        raise FetchError(f"the application's startup failed: {type(error).__name__}: {error}") from error
    try:
        yield client
    finally:
        try:
            client.__exit__()
        except Exception as error:
            raise FetchError(f"the application's shutdown failed: {type(error).__name__}: {error}") from error


def _with_lifespan(app: App) -> App:
    """Return the application with a lifespan: one that raises or returns without a message does not support it."""

    async def call(scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        is_supported = False

        async def watch(message: _Message) -> None:
            nonlocal is_supported
            is_supported = True
            await send(message)

        try:
            await app(scope, receive, watch)
        except Exception:
            if is_supported:
                raise
        if not is_supported:
            await send({"type": "lifespan.startup.complete"})
            while (await receive())["type"] != "lifespan.shutdown":
                pass
            await send({"type": "lifespan.shutdown.complete"})

    return call
