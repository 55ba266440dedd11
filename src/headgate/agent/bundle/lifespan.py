"""The lifespan of an ASGI application: startup before the first request, shutdown behind the last."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from headgate.errors import FetchError

__all__ = ["App", "Lifespan", "Message", "Receive", "Scope", "Send"]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_PATIENCE: Final = 60.0
"""Seconds that startup and shutdown may take each."""


class Lifespan:
    """An asynchronous context manager about an application's requests.

    An application that raises on the lifespan's scope, or returns, "does not support it", and is called without
    (ASGI's lifespan specification). Raises `FetchError` when its startup fails, or takes too long.
    """

    def __init__(self, app: App) -> None:
        self.state: dict[str, Any] = {}
        """What the application keeps for its requests; each gets a copy."""
        self._app = app
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._answered = asyncio.Event()
        self._failure: str | None = None
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        self._running = asyncio.create_task(self._run(scope))
        try:
            await self._tell("startup")
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._tell("shutdown")
        finally:
            await self._stop()

    async def _tell(self, what: str) -> None:
        self._answered.clear()
        if self._running is None or self._running.done():
            return
        self._messages.put_nowait({"type": f"lifespan.{what}"})
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._answered.wait()
        except TimeoutError:
            raise FetchError(f"the application's {what} takes more than {_PATIENCE:g} s") from None
        if self._failure is not None:
            raise FetchError(f"the application's {what} failed: {self._failure or 'it does not say why'}")

    async def _run(self, scope: Scope) -> None:
        try:
            with suppress(Exception):  # one that raises does not support this: "the server should continue without"
                await self._app(scope, self._messages.get, self._send)
        finally:
            self._answered.set()

    async def _send(self, message: Message) -> None:
        if message["type"].endswith(".failed"):
            told = str(message.get("message", "")).strip().splitlines()
            self._failure = told[-1] if told else ""  # a traceback ends with what was raised
        self._answered.set()

    async def _stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
