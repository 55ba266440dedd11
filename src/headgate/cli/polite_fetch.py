"""One GET through a `Courtesy`, with the client of the standard library, which starts in a third of the time of others.

Redirects are followed, each as a request of its own. Every wait for the server is limited.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING, Any, Final
from urllib.error import URLError
from urllib.parse import unquote, urlsplit
from urllib.request import AbstractHTTPHandler, HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from headgate.agent import Courtesy
from headgate.agent.attempt import REDIRECTS, redirect_target
from headgate.agent.urllib import AdviceMessage, Handler
from headgate.errors import FetchError, NoContact, reason_of
from headgate.fetch.pace import FETCH_TIMEOUT, CallThread, Pace
from headgate.http.url import serialised_origin

if TYPE_CHECKING:
    from ssl import SSLContext


MAX_REDIRECTS: Final = 20

_READ_SIZE: Final = 1 << 16
_MAX_INTERIM_RESPONSES: Final = 100
_PRIVATE_FIELDS: Final = frozenset({"authorization", "cookie"})
"""Fields that a redirect to another origin is sent without."""

Observe = Callable[[str, str], AbstractContextManager[dict[str, Any]]]
"""Called with the method and URL of a request; the context is open while it is sent, and receives its response."""


class FetchedResponse:
    """A response with its body as it arrives."""

    def __init__(self, url: str, response: Any, thread: CallThread) -> None:
        self.url = url
        """The URL after redirects."""
        self.status: int = response.status
        self.fields: list[tuple[str, str]] = response.headers.items()
        self._response = response
        self._thread = thread

    def chunks(self) -> Iterator[bytes]:
        """Yield the decoded body; raises `FetchError` if it is truncated, damaged or too slow."""
        coding = (self._response.headers.get("content-encoding") or "").strip().lower()
        if coding in {"", "identity"}:
            yield from self._coded()
            return
        from headgate.bundle.sources.codings import DECODERS, DecodingError, decode_chunks

        coding = coding.removeprefix("x-")
        if coding not in DECODERS:
            yield from self._coded()
            return
        try:
            yield from decode_chunks(self._coded(), coding)
        except DecodingError as error:
            raise FetchError(f"{self.url}: the content coding {coding} is damaged: {error}") from None

    def _coded(self) -> Iterator[bytes]:
        pace = Pace(self.url, FETCH_TIMEOUT)
        arriving = iter(partial(self._response.read1, _READ_SIZE), b"")
        with _as_fetch_error(self.url):
            while (chunk := pace.timed(arriving, self._thread)) is not None:
                yield chunk
        if self._response.length:  # `read1` does not report missing bytes
            raise FetchError(f"{self.url}: the body ended {self._response.length} bytes before its Content-Length")


class PoliteFetch:
    """Sends GETs through `courtesy`; `observe` is called with each that is sent."""

    def __init__(self, courtesy: Courtesy, *, tls: "SSLContext | None", observe: Observe) -> None:
        self._thread = CallThread()
        self._cookies = CookieJar()
        self._opener = OpenerDirector()
        senders = _Http(self._thread, observe), _Https(self._thread, observe, context=tls)
        for handler in (ProxyHandler(), Handler(courtesy), *senders):
            self._opener.add_handler(handler)

    @contextmanager
    def get(self, url: str, fields: Mapping[str, str]) -> Iterator[FetchedResponse]:
        """Send a GET for an absolute URL, follow redirects, and open the response.

        Raises `NoContact` for a request that is held, and `FetchError` for a missing or invalid response.
        """
        with closing(self._thread):
            for _ in range(MAX_REDIRECTS + 1):
                with _as_fetch_error(url):
                    response = self._open(url, fields)
                with closing(response):
                    following = redirect_target(url, response.headers) if response.status in REDIRECTS else None
                    if following is None:
                        yield FetchedResponse(url, response, self._thread)
                        return
                url, fields = following, _fields_after_redirect(url, following, fields)
            raise FetchError(f"{url}: more than {MAX_REDIRECTS} redirects")

    def _open(self, url: str, fields: Mapping[str, str]) -> Any:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        request = Request(parts._replace(netloc=host).geturl(), headers=dict(fields))  # noqa: S310 - checked by callers
        if parts.username is not None and not request.has_header("Authorization"):
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            request.add_unredirected_header("Authorization", f"Basic {b64encode(user.encode()).decode()}")
        self._cookies.add_cookie_header(request)
        response = self._opener.open(request, timeout=FETCH_TIMEOUT)
        self._cookies.extract_cookies(response, request)
        return response


class _FinalResponse(HTTPResponse):
    """A response that skips interim ones, such as 103; Python's client skips only 100."""

    def begin(self) -> None:
        """Read heads until one is final."""
        super().begin()
        for _ in range(_MAX_INTERIM_RESPONSES):
            if not 102 <= self.status <= 199:
                return
            self.headers = self.msg = None  # type: ignore[assignment]  # as before the first head
            super().begin()


class _Timed(AbstractHTTPHandler):
    """Limits the time until the head of a response is complete; Python's timeout is for each byte."""

    def __init__(self, thread: CallThread, observe: Observe, **options: Any) -> None:
        super().__init__(**options)
        self._call = thread.call
        self._observe = observe

    def do_open(self, http_class: Any, req: Request, **options: Any) -> Any:
        """Send a request over a connection of its own."""

        def connect(*address: Any, **settings: Any) -> HTTPConnection:
            connection: HTTPConnection = http_class(*address, **settings)
            connection.response_class = _FinalResponse
            return connection

        send = partial(super().do_open, connect, req, **options)
        if isinstance(req, AdviceMessage):  # in a thread of its own, and limited there
            return send()
        with self._observe(req.get_method(), req.full_url) as outcome:
            response = self._call(send, 2 * FETCH_TIMEOUT)
            outcome["status"] = response.status
            outcome["retry_after"] = response.headers.get("retry-after")
        return response


class _Http(_Timed, HTTPHandler):
    pass


class _Https(_Timed, HTTPSHandler):
    pass


def _fields_after_redirect(url: str, following: str, fields: Mapping[str, str]) -> Mapping[str, str]:
    """Return the fields of the next request; raises `FetchError` for a redirect that is not followed."""
    if not following.startswith(("https://", "http://")):
        raise FetchError(f"{url}: redirected to {following[:200]!r}, which is not an http or https URL")
    if url.startswith("https:") and following.startswith("http:"):
        raise FetchError(f"{url}: redirected from https to http; request that URL itself to allow it")
    if serialised_origin(url) == serialised_origin(following):
        return fields
    return {name: value for name, value in fields.items() if name.lower() not in _PRIVATE_FIELDS}


@contextmanager
def _as_fetch_error(url: str) -> Iterator[None]:
    """Raise the errors of the standard library as `FetchError` with the URL."""
    try:
        yield
    except NoContact:
        raise
    except TimeoutError:
        raise FetchError(f"{url}: the server did not respond in time") from None
    except (OSError, HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        untrusted = getattr(cause, "verify_message", "")  # of a certificate
        reason = f"its certificate is not trusted: {untrusted}" if untrusted else reason_of(cause)
        raise FetchError(f"{url}: {(reason or type(cause).__name__)[:200]}") from error
