"""Fetching advice with the handlers of an opener that connect: its proxies, its TLS context, its cookie-free part.

The opener itself would add cookies and its own headers, log in, and follow redirects: all that is left out here.
"""

import http.client
import socket
import time
from contextlib import closing
from typing import Any, Final
from urllib.request import BaseHandler, OpenerDirector, Request

from headgate.advice.fetching import TIMEOUT, AdviceRequest, AdviceResponse, ResponseCollector, too_late
from headgate.errors import NoContact
from headgate.fetch.local_errors import is_local, is_refused_by_proxy

_READ_SIZE: Final = 1 << 16


class AdviceMessage(Request):  # noqa: S310 - its URLs are http or https, by the core
    """The request for advice: a type of its own, so that a handler of ours lets it through."""


def fetch_with(opener: OpenerDirector, request: AdviceRequest, *, skipped: type[BaseHandler]) -> AdviceResponse:
    """Make the request with the handlers of `opener` other than `skipped`; raises what is a failure of this machine."""
    message = AdviceMessage(request.url, headers=dict(request.fields))
    message.timeout = TIMEOUT
    host = message.host
    collector = ResponseCollector()
    deadline = time.monotonic() + TIMEOUT
    try:
        with closing(_opened(opener, message, skipped)) as response:
            if not collector.head(response.status, response.headers.items()):
                return collector.broken()
            read = getattr(response, "read1", response.read)  # which waits for no more than there is
            while chunk := read(_READ_SIZE):
                if not collector.add(chunk):
                    break
                if time.monotonic() > deadline:
                    return collector.broken(too_late())
        return collector.whole()
    except (OSError, http.client.HTTPException) as error:
        # A handler has put the proxy in the place of the host.
        of_proxy = message.host != host and _is_of_proxy(error)
        if of_proxy or isinstance(error, NoContact) or is_local(error):
            raise
        return collector.broken(str(getattr(error, "reason", error)) or type(error).__name__)


def _is_of_proxy(error: Exception) -> bool:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ConnectionRefusedError | socket.gaierror):
        return True
    return "Tunnel connection failed" in str(reason) and is_refused_by_proxy(reason)


def _opened(opener: Any, message: AdviceMessage, skipped: type[BaseHandler]) -> Any:
    """Ask the handlers in their order, as the opener does."""
    scheme = message.type
    for handler in opener.handle_open[scheme]:
        if not isinstance(handler, skipped):
            response = getattr(handler, f"{scheme}_open")(message)
            if response is not None:
                return response
    raise RuntimeError(f"no handler of the opener opens {scheme} URLs")
