"""A polite adapter for requests."""

from typing import Any, ClassVar

from headgate.agent.requests_adapter import BlockingAdapter
from headgate.errors import MissingExtra, RetryLater

try:
    import requests
    from requests.adapters import HTTPAdapter
except ImportError:
    raise MissingExtra("requests", "headgate.agent.requests") from None

__all__ = ["Adapter", "Held"]


class Held(RetryLater, requests.ConnectionError):
    """A request was held, and not sent; `request` is that request."""

    request: requests.PreparedRequest | None = None
    response: None = None


class Adapter(BlockingAdapter, HTTPAdapter):
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
    _library: ClassVar[Any] = requests
    _held = Held
