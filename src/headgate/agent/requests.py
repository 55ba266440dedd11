"""A polite adapter for requests.

A session gives its adapter one request at a time: each hop of a redirect comes here as a request of its own. Nothing
of a response's body is read here, unless its request is sent again.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Any, Final

from headgate.advice.fetching import ADVICE_TIMEOUT, AdviceRequest, AdviceResponse
from headgate.agent.advice_client import in_thread
from headgate.agent.attempt import Failure
from headgate.agent.courtesy import Courtesy, check_courtesy
from headgate.agent.transport import (
    MAX_READ_SIZE,
    READ_TIMEOUT,
    AdviceReception,
    agent_fields,
    chunks_of,
    is_interactive,
    send_politely,
)
from headgate.errors import ConfigurationError, MissingExtra, RetryLater
from headgate.fetch.local_errors import concerns_origin, is_refused_by_proxy
from headgate.throttle.fields import Headers

try:
    import requests
    import urllib3
    from requests.adapters import BaseAdapter, HTTPAdapter
except ImportError:
    raise MissingExtra("requests", "headgate.agent.requests") from None

__all__ = ["Adapter", "Held"]

_OPTIONS: Final = ("stream", "timeout", "verify", "cert", "proxies")
"""The other arguments of an adapter's `send`, in order; they are also passed by name."""


class Held(RetryLater, requests.ConnectionError):
    """A request was held, and not sent; `request` is that request."""

    request: requests.PreparedRequest | None = None
    response: None = None


class Adapter(HTTPAdapter):
    """For `session.mount("https://", Adapter(courtesy))`, and the same for `"http://"`.

    `inner` is the adapter that sends. Without it, this adapter sends, and takes the options of an `HTTPAdapter`; its
    `max_retries` do not apply to statuses, and a `status_forcelist` raises `ConfigurationError`; use
    `Courtesy(retry=3)` instead. A held request raises `Held`, both a `RetryLater` and a `requests.ConnectionError`, and
    is not sent. Its timeouts do not include the time that it waits.

    For a request that a user waits for, set the attribute `headgate` of the result of `session.prepare_request` to
    `{"interactive": True}`. Only requests whose body is bytes or text are sent again. Put a cache in front of this, as
    requests-cache does; or derive a class from CacheControl's adapter and this one, in this order, and pass the
    `courtesy` by name. Responses from a cache of the inner adapter are not counted.
    """

    __attrs__ = [*HTTPAdapter.__attrs__, "_courtesy", "_inner"]  # noqa: RUF012 - as requests has it: what is pickled

    def __init__(self, courtesy: Courtesy, inner: BaseAdapter | None = None, **options: Any) -> None:
        if inner is not None and options:
            raise ConfigurationError(f"{', '.join(options)}: the inner adapter is the one that sends; give it that")
        self._courtesy = check_courtesy(courtesy)
        self._inner = inner
        super().__init__(**options)
        if self.max_retries.status_forcelist:
            raise ConfigurationError("max_retries: a retry for a status has to be asked for; try Courtesy(retry=3)")
        # Otherwise urllib3 would also use its number of connection attempts for responses with Retry-After.
        self.max_retries = self.max_retries.new(respect_retry_after_header=False)

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send a request when it may be sent; raises `Held` if that is too late."""
        forward = super().send if self._inner is None else self._inner.send
        start_fetch = None
        if self._courtesy.fetches_advice:
            given = {**dict(zip(_OPTIONS, args, strict=False)), **options}
            start_fetch = in_thread(partial(fetch_with, forward, options=given))
        attempt = self._courtesy.attempt(
            request.method or "GET",
            request.url or "",
            interactive=is_interactive(getattr(request, "headgate", None)),
            repeatable=request.body is None or isinstance(request.body, bytes | str),
            idempotent="Idempotency-Key" in request.headers,
            refusal=Held,
            start_fetch=start_fetch,
        )
        request.headers.update(agent_fields(self._courtesy, str(request.headers.get("User-Agent", ""))))
        try:
            return send_politely(
                attempt, partial(forward, request, *args, **options), head=_head, drain=_drain, failure=_failure_of
            )
        except Held as held:
            held.request = request
            raise

    def close(self) -> None:
        """Close the connections, and the adapter that sends."""
        super().close()
        if self._inner is not None:
            self._inner.close()


def _head(response: requests.Response) -> tuple[int, Headers] | None:
    return None if getattr(response, "from_cache", False) else (response.status_code, _fields(response))


def _drain(response: requests.Response) -> None:
    """Read a body to its end, if it is short and arrives soon, and close the response."""
    raw: Any = response.raw
    with closing(response), suppress(Exception):  # an error in it is not the next response's
        raw.connection.sock.settimeout(READ_TIMEOUT)  # urllib3 sets another one for the next response
        read = getattr(raw, "read1", raw.read)  # which waits for no more than there is
        left, deadline = MAX_READ_SIZE, time.monotonic() + READ_TIMEOUT
        while left > 0 and time.monotonic() <= deadline and (chunk := read(left, decode_content=False)):
            left -= len(chunk)


def _failure_of(error: Exception) -> Failure:
    broken = isinstance(error, requests.ConnectionError | requests.Timeout)
    if not broken or not concerns_origin(error) or _is_of_proxy(error):
        return "ours"
    cause = getattr(error.args[0] if error.args else None, "reason", None)  # of urllib3's MaxRetryError
    unsent = urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError
    return "unsent" if isinstance(cause, unsent) else "broken"


def _is_of_proxy(error: Exception) -> bool:
    return isinstance(error, requests.exceptions.ProxyError) and is_refused_by_proxy(error)


def _fields(response: requests.Response) -> list[tuple[str, str]]:
    # Line by line: `response.headers` joins lines of one name.
    return list(getattr(response.raw, "headers", response.headers).items())


def fetch_with(
    send: Callable[..., requests.Response], request: AdviceRequest, *, options: Mapping[str, Any]
) -> AdviceResponse:
    """Fetch advice with `send`, an adapter's, and its options for proxies and TLS; raises what failed locally.

    Cookies, credentials, `.netrc` and redirects are the session's part: none of them is in the request.
    """
    message = requests.PreparedRequest()
    message.prepare("GET", request.url, headers=dict(request.fields))
    reception = AdviceReception(request)
    try:
        with closing(send(message, **{**options, "stream": True, "timeout": ADVICE_TIMEOUT})) as response:
            return reception.receive(response.status_code, _fields(response), chunks_of(response.raw))
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        return reception.failed(error, is_ours=_is_of_proxy(error))
