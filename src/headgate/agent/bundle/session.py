"""Run generators that read from a server, with a synchronous or an asynchronous client.

Such a generator, a `Work`, sends nothing: it yields steps and is sent their results, or the errors that they raised.
So what reads bundles by range and what answers requests from them is written once for both kinds of client.
"""

from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

from headgate.agent.bundle.fetcher import AsyncFetcher, Fetcher
from headgate.agent.bundle.range_protocol import LengthChecked

_Result = TypeVar("_Result")


class Send(NamedTuple):
    """Send a GET. The result is its `Reply`; the reply before it is closed."""

    url: str
    fields: Mapping[str, str]


class NextChunk(NamedTuple):
    """Wait for the next chunk of the reply. The result is None after the last."""


NEXT_CHUNK: Final = NextChunk()

Work: TypeAlias = Generator[Send | NextChunk, Any, _Result]


class ArrivingBody:
    """The body of a response: what has arrived of it, and the rest, which is checked as it arrives."""

    def __init__(self, arrived: Iterator[bytes], rest: LengthChecked | None = None) -> None:
        self.arrived = arrived
        self.rest = rest
        """None where all has arrived."""

    def chunks(self) -> Work[list[bytes]]:
        """Wait for some chunks; return none after the last."""
        if (chunk := next(self.arrived, None)) is not None:
            return [chunk]
        if self.rest is None:
            return []
        if (chunk := (yield NEXT_CHUNK)) is not None:
            return [self.rest.take(chunk)]
        self.rest.end()
        return []


class _Slice:
    """Cuts chunks to the bytes from `start` to before `stop`."""

    def __init__(self, start: int, stop: int | None) -> None:
        self._start = start
        self._stop = stop
        self._position = 0

    @property
    def is_complete(self) -> bool:
        return self._stop is not None and self._position >= self._stop

    def cut(self, chunk: bytes) -> bytes:
        begin, self._position = self._position, self._position + len(chunk)
        stop = len(chunk) if self._stop is None else max(0, self._stop - begin)
        return chunk[max(0, self._start - begin) : stop]


class Session:
    """Runs work with a synchronous client; a context manager that closes the last reply."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._stack = ExitStack()
        self._chunks: Iterator[bytes] = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, work: Work[_Result]) -> _Result:
        """Run work to its end; return its result, or raise its error."""
        with closing(work):
            try:
                step = next(work)
                while True:
                    try:
                        found = self._perform(step)
                    except Exception as error:
                        step = work.throw(error)
                    else:
                        step = work.send(found)
            except StopIteration as done:
                result: _Result = done.value
                return result

    def chunks(self, body: ArrivingBody, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of a body from `start` to before `stop`, and wait for no more of it."""
        part = _Slice(start, stop)
        while not part.is_complete and (chunks := self.run(body.chunks())):
            yield from filter(None, map(part.cut, chunks))

    def _perform(self, step: Send | NextChunk) -> Any:
        if isinstance(step, NextChunk):
            return next(self._chunks, None)
        self._stack.close()
        reply = self._stack.enter_context(self._fetcher.get(step.url, step.fields))
        self._chunks = reply.chunks()
        return reply


class AsyncSession:
    """`Session` for an asynchronous client."""

    def __init__(self, fetcher: AsyncFetcher) -> None:
        self._fetcher = fetcher
        self._stack = AsyncExitStack()
        self._chunks: AsyncIterator[bytes] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def run(self, work: Work[_Result]) -> _Result:
        """Run work to its end; return its result, or raise its error."""
        with closing(work):
            try:
                step = next(work)
                while True:
                    try:
                        found = await self._perform(step)
                    except Exception as error:
                        step = work.throw(error)
                    else:
                        step = work.send(found)
            except StopIteration as done:
                result: _Result = done.value
                return result

    async def chunks(self, body: ArrivingBody, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes of a body from `start` to before `stop`, and wait for no more of it."""
        part = _Slice(start, stop)
        while not part.is_complete and (chunks := await self.run(body.chunks())):
            for piece in filter(None, map(part.cut, chunks)):
                yield piece

    async def _perform(self, step: Send | NextChunk) -> Any:
        if isinstance(step, NextChunk):
            return await anext(self._chunks, None) if self._chunks is not None else None
        await self._stack.aclose()
        reply = await self._stack.enter_async_context(self._fetcher.get(step.url, step.fields))
        self._chunks = await self._stack.enter_async_context(aclosing(reply.achunks()))
        return reply
