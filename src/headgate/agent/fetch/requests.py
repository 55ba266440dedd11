"""Fetching advice with the adapter that sends a request, and the proxy, TLS and certificate settings of that request.

Cookies, credentials, `.netrc` and redirects are the session's part, not the adapter's: none of them is in the request.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final

import requests
import urllib3

from headgate.advice.fetching import TIMEOUT, AdviceRequest, AdviceResponse, ResponseCollector, too_late
from headgate.errors import NoContact
from headgate.fetch.local_errors import is_local, is_refused_by_proxy

_READ_SIZE: Final = 1 << 16


def fetch_with(
    send: Callable[..., requests.Response], request: AdviceRequest, *, options: Mapping[str, Any]
) -> AdviceResponse:
    """Make the request with `send`, an adapter's, and its `options`; raises what is a failure of this machine."""
    message = requests.PreparedRequest()
    message.prepare("GET", request.url, headers=dict(request.fields))
    collector = ResponseCollector()
    deadline = time.monotonic() + TIMEOUT
    try:
        with closing(send(message, **{**options, "stream": True, "timeout": TIMEOUT})) as response:
            headers = getattr(response.raw, "headers", response.headers)
            if not collector.head(response.status_code, list(headers.items())):
                return collector.broken()
            read = getattr(response.raw, "read1", response.raw.read)  # which waits for no more than there is
            while chunk := read(_READ_SIZE):
                if not collector.add(chunk):
                    break
                if time.monotonic() > deadline:
                    return collector.broken(too_late())
        return collector.whole()
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        of_proxy = isinstance(error, requests.exceptions.ProxyError) and is_refused_by_proxy(error)
        if of_proxy or isinstance(error, NoContact) or is_local(error):
            raise
        return collector.broken(str(error) or type(error).__name__)
