"""The opener of `headgate get`: the standard library's, with the polite handler, and with safe redirects."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPException
from ssl import SSLContext
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import (
    HTTPCookieProcessor,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from headgate.agent import Courtesy
from headgate.agent.urllib import Handler
from headgate.errors import FetchError, RetryLater, reason_of
from headgate.fetch.pace import FETCH_TIMEOUT
from headgate.http.url import serialised_origin
from headgate.throttle.throttle import REDIRECTS

MAX_REDIRECTS = 20


@contextmanager
def open_politely(courtesy: Courtesy, url: str, fields: Mapping[str, str], *, tls: SSLContext | None) -> Iterator[Any]:
    """Send a GET through `courtesy`, follow its redirects, and open the response.

    Raises `FetchError` for what goes wrong, also in the block.
    """
    parts = urlsplit(url)
    request = Request(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(), headers=dict(fields))  # noqa: S310 - http or https
    if parts.username is not None and not request.has_header("Authorization"):
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_unredirected_header("Authorization", f"Basic {b64encode(user.encode()).decode()}")
    opener = build_opener(Handler(courtesy), HTTPCookieProcessor(), _SafeRedirects(), HTTPSHandler(context=tls))
    try:
        try:
            response: Any = opener.open(request, timeout=FETCH_TIMEOUT)
        except HTTPError as error:
            if error.code in REDIRECTS and error.headers.get("location"):
                target = error.headers["location"][:200]
                raise FetchError(
                    f"{url}: redirected to {target!r}, which is not followed: expected an http or https URL, "
                    f"after at most {MAX_REDIRECTS} redirects"
                ) from None
            response = error
        with closing(response):
            yield response
    except RetryLater:
        raise
    except (OSError, HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        untrusted = getattr(cause, "verify_message", "")  # of a certificate
        reason = f"its certificate is not trusted: {untrusted}" if untrusted else reason_of(cause)
        raise FetchError(f"{request.full_url}: {(reason or type(cause).__name__)[:200]}") from error


class _SafeRedirects(HTTPRedirectHandler):
    """Follows no redirect from https to http, and sends credentials to no other origin."""

    max_redirections = max_repeats = MAX_REDIRECTS

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:  # noqa: PLR0917 - overrides
        """Return the next request."""
        if not newurl.startswith(("https://", "http://")) or (req.type == "https" and newurl.startswith("http:")):
            raise FetchError(f"{req.full_url}: redirected to {newurl[:200]!r}, which is not followed")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and serialised_origin(req.full_url) != serialised_origin(newurl):
            following.headers.pop("Authorization", None)
            following.headers.pop("Cookie", None)
        return following
