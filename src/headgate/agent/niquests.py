"""Polite adapters for niquests: one for its `Session`, and one for its `AsyncSession`."""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, ClassVar

from headgate.advice.fetching import AdviceRequest, AdviceResponse
from headgate.agent.advice_client import in_task
from headgate.agent.requests_adapter import (
    BlockingAdapter,
    PoliteAdapter,
    connection_options,
    fields_of,
    head,
    message_of,
)
from headgate.agent.transport import MAX_READ_SIZE, AdviceReception, send_politely_async
from headgate.errors import MissingExtra, RetryLater

try:
    import niquests
    from niquests.adapters import AsyncHTTPAdapter, HTTPAdapter
except ImportError:
    raise MissingExtra("niquests", "headgate.agent.niquests") from None

__all__ = ["Adapter", "AsyncAdapter", "Held"]


class Held(RetryLater, niquests.ConnectionError):
    """A request was held, and not sent; `request` is that request."""

    request: niquests.PreparedRequest | None = None
    response: None = None


class Adapter(BlockingAdapter, HTTPAdapter):
    """For `session.mount("https://", Adapter(courtesy))`, and the same for `"http://"`.

    Its options are those of `headgate.agent.requests.Adapter`. A `Session(multiplexed=True)` waits for the head of each
    response.
    """

    __attrs__ = [*HTTPAdapter.__attrs__, "_courtesy", "_inner"]  # noqa: RUF012 - as niquests has it: what is pickled
    _library: ClassVar[Any] = niquests
    _held = Held

    def send(self, request: niquests.PreparedRequest, *args: Any, **options: Any) -> Any:
        """Send a request when it may be sent; raises `Held` if that is too late."""
        return super().send(request, *args, **{**options, "multiplexed": False})


class AsyncAdapter(PoliteAdapter, AsyncHTTPAdapter):
    """The same for an `AsyncSession`. The connection of a refused response is closed."""

    __attrs__ = [*AsyncHTTPAdapter.__attrs__, "_courtesy", "_inner"]  # noqa: RUF012 - as niquests has it: what is pickled
    _library: ClassVar[Any] = niquests
    _held = Held

    async def send(self, request: niquests.PreparedRequest, *args: Any, **options: Any) -> Any:
        """Send a request when it may be sent; raises `Held` if that is too late."""
        forward: Any = super().send if self._inner is None else self._inner.send
        options["multiplexed"] = False
        attempt = self._attempt(request, in_task(partial(_fetch_with, forward, options=options)))
        try:
            return await send_politely_async(
                attempt,
                request,
                request.headers,
                lambda request: forward(request, *args, **options),
                head=head,
                drain=lambda _request, response: response.close(),
                failure=self._failure_of,
            )
        except Held as held:
            held.request = request
            raise

    async def close(self) -> None:
        """Close the connections, and the adapter that sends."""
        await super().close()
        if self._inner is not None:
            await self._inner.close()


async def _chunks_of(body: Any) -> AsyncIterator[bytes]:
    while chunk := await body.read(MAX_READ_SIZE):
        yield chunk


async def _fetch_with(send: Any, request: AdviceRequest, *, options: Mapping[str, Any]) -> AdviceResponse:
    """Fetch advice with an adapter's `send`; raises what failed locally."""
    reception = AdviceReception(request)
    try:
        response = await send(message_of(niquests, request), **connection_options(options))
        try:
            return await reception.receive_async(response.status_code, fields_of(response), _chunks_of(response.raw))
        finally:
            await response.close()
    except niquests.RequestException as error:
        return reception.failed(error, is_ours=False)
