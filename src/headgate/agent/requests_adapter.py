"""What the polite adapters for requests and niquests share, which have one interface.

A session gives its adapter one request at a time: each hop of a redirect comes here as a request of its own. Nothing
of a response's body is read here, unless its request is sent again.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Any, ClassVar, Final

from headgate.advice.fetching import ADVICE_TIMEOUT, AdviceRequest, AdviceResponse
from headgate.agent.advice_client import StartFetch, in_thread
from headgate.agent.attempt import Attempt, Failure
from headgate.agent.courtesy import Courtesy, check_courtesy
from headgate.agent.transport import (
    MAX_READ_SIZE,
    READ_TIMEOUT,
    AdviceReception,
    chunks_of,
    is_interactive,
    send_politely,
)
from headgate.errors import RetryLater, fail_if
from headgate.fetch.local_errors import concerns_origin, is_refused_by_proxy
from headgate.throttle.fields import Headers

_OPTIONS: Final = ("stream", "timeout", "verify", "cert", "proxies")
"""The other arguments of an adapter's `send`, in order; they are also passed by name."""


class PoliteAdapter:
    """The first base class of an adapter; the second is the library's `HTTPAdapter`."""

    _library: ClassVar[Any]
    """requests or niquests."""
    _held: ClassVar[type[RetryLater]]
    """What is raised for a held request."""

    def __init__(self, courtesy: Courtesy, inner: Any = None, **options: Any) -> None:
        fail_if(
            inner is not None and options,
            f"{', '.join(options)}: the inner adapter is the one that sends; give it that",
        )
        self._courtesy = check_courtesy(courtesy)
        self._inner = inner
        super().__init__(**options)
        adapter: Any = self
        fail_if(
            adapter.max_retries.status_forcelist,
            "max_retries: a retry for a status has to be asked for; try Courtesy(retry=3)",
        )
        # Otherwise urllib3 would also use its number of connection attempts for responses with Retry-After.
        adapter.max_retries = adapter.max_retries.new(respect_retry_after_header=False)

    def _attempt(self, request: Any, start_fetch: StartFetch) -> Attempt:
        return self._courtesy.attempt(
            request.method or "GET",
            request.url or "",
            interactive=is_interactive(getattr(request, "headgate", None)),
            repeatable=request.body is None or isinstance(request.body, bytes | str),
            idempotent="Idempotency-Key" in request.headers,
            refusal=self._held,
            start_fetch=start_fetch if self._courtesy.fetches_advice else None,
        )

    def _failure_of(self, _request: Any, error: Exception) -> Failure:
        return failure_of(self._library, error)


class BlockingAdapter(PoliteAdapter):
    """The same for a library's blocking adapter."""

    def send(self, request: Any, *args: Any, **options: Any) -> Any:
        """Send a request when it may be sent; raises `Held` if that is too late."""
        base: Any = super()
        forward = base.send if self._inner is None else self._inner.send
        given = {**dict(zip(_OPTIONS, args, strict=False)), **options}
        attempt = self._attempt(request, in_thread(partial(fetch_with, forward, options=given, library=self._library)))
        try:
            return send_politely(
                attempt,
                request,
                request.headers,
                lambda request: forward(request, *args, **options),
                head=head,
                drain=_drain,
                failure=self._failure_of,
            )
        except self._held as held:
            held.__dict__["request"] = request
            raise

    def close(self) -> None:
        """Close the connections, and the adapter that sends."""
        base: Any = super()
        base.close()
        if self._inner is not None:
            self._inner.close()


def head(response: Any) -> tuple[int, Headers] | None:
    """Return status and fields of a response; None if it comes from a cache."""
    return None if getattr(response, "from_cache", False) else (response.status_code, fields_of(response))


def _drain(_request: Any, response: Any) -> None:
    """Read a body to its end, if it is short and arrives soon, and close the response."""
    raw: Any = response.raw
    with closing(response), suppress(Exception):  # an error in it is not the next response's
        raw.connection.sock.settimeout(READ_TIMEOUT)  # urllib3 sets another one for the next response
        read = getattr(raw, "read1", raw.read)  # which waits for no more than there is
        left, deadline = MAX_READ_SIZE, time.monotonic() + READ_TIMEOUT
        while left > 0 and time.monotonic() <= deadline and (chunk := read(left, decode_content=False)):
            left -= len(chunk)


def failure_of(library: Any, error: Exception) -> Failure:
    """Return what kind of failure an exception is that an adapter of this library has raised for a request."""
    broken = isinstance(error, library.ConnectionError | library.Timeout)
    if not broken or not concerns_origin(error) or _is_of_proxy(library, error):
        return "ours"
    cause = getattr(error.args[0] if error.args else None, "reason", None)  # of urllib3's MaxRetryError
    errors = library.packages.urllib3.exceptions
    unsent = errors.NewConnectionError, errors.ConnectTimeoutError
    return "unsent" if isinstance(cause, unsent) else "broken"


def _is_of_proxy(library: Any, error: Exception) -> bool:
    return isinstance(error, library.exceptions.ProxyError) and is_refused_by_proxy(error)


def fields_of(response: Any) -> list[tuple[str, str]]:
    """Return the fields of a response, line by line where that is known."""
    # Line by line: `response.headers` joins lines of one name.
    return list(getattr(response.raw, "headers", response.headers).items())


def fetch_with(
    send: Callable[..., Any], request: AdviceRequest, *, options: Mapping[str, Any], library: Any
) -> AdviceResponse:
    """Fetch advice with `send`, an adapter's, and its options for proxies and TLS; raises what failed locally.

    Cookies, credentials, `.netrc` and redirects are the session's part: none of them is in the request.
    """
    reception = AdviceReception(request)
    try:
        with closing(send(message_of(library, request), **connection_options(options))) as response:
            return reception.receive(response.status_code, fields_of(response), chunks_of(response.raw))
    except (library.RequestException, library.packages.urllib3.exceptions.HTTPError) as error:
        return reception.failed(error, is_ours=_is_of_proxy(library, error))


def message_of(library: Any, request: AdviceRequest) -> Any:
    """Return the library's request for advice."""
    message = library.PreparedRequest()
    message.prepare("GET", request.url, headers=dict(request.fields))
    return message


def connection_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an adapter's `send` for advice that goes over the same connections as a request."""
    return {**options, "stream": True, "timeout": ADVICE_TIMEOUT}
