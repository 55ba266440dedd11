"""One fetch of traffic advice, from its request to what came of it, or of as much of it as came in time."""

import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from headgate.advice.fetching import MAX_BODY_BYTES, NETWORK_ERROR, TIMEOUT, AdviceRequest, AdviceResponse, needs_body
from headgate.agent.advice.connection import connected
from headgate.agent.advice.content import content
from headgate.agent.advice.deadline import Deadline
from headgate.agent.advice.response import Broken, ResponseReader
from headgate.agent.advice.trust import PROTOCOL, usual_authorities
from headgate.http.lists import Pairs

__all__ = ["fetch_advice", "fetch_until", "message_of"]

_PORTS = {"http": 80, "https": 443}
_is_line = re.compile(r"[^\0-\x08\n-\x1f\x7f]*").fullmatch


def fetch_advice(
    request: AdviceRequest,
    *,
    tls: ssl.SSLContext | None = None,
    wanted: Callable[[int, Pairs], bool] = needs_body,
    timeout: float = TIMEOUT,
) -> AdviceResponse:
    """Make a request, once, and give what came of it; `NETWORK_ERROR` where that was no whole head of a response.

    It blocks, `timeout` seconds in all at most, whatever servers and name servers do. The body is read where its head
    is `wanted`. `tls` is whom to trust instead of the usual authorities; it is made to speak HTTP/1.1 alone.
    """
    return fetch_until(Deadline(timeout), request, tls=tls, wanted=wanted)


def fetch_until(
    deadline: Deadline,
    request: AdviceRequest,
    *,
    tls: ssl.SSLContext | None = None,
    wanted: Callable[[int, Pairs], bool] = needs_body,
) -> AdviceResponse:
    """Do the same, and be through at the deadline."""
    came = NETWORK_ERROR
    try:
        message = message_of(request)
        trusted = _trust(tls) if message.is_secure else None
        with connected(message.host, message.port, tls=trusted, deadline=deadline) as connection:
            # Who refuses to read may have said why.
            with suppress(ConnectionError):
                connection.send(message.text)
            reader = ResponseReader(connection.receive)
            status, fields = reader.head()
            came = AdviceResponse(status, fields, None)
            if wanted(status, fields):
                body = reader.body(most=MAX_BODY_BYTES)
                came = came._replace(body=content(body, fields, most=MAX_BODY_BYTES, deadline=deadline))
    except TimeoutError:
        return came._replace(failure=str(deadline))
    except Broken as error:
        return came._replace(failure=str(error))
    except ssl.SSLCertVerificationError as error:
        return came._replace(failure=f"its certificate is not trusted: {error.verify_message}")
    except OSError as error:
        return came._replace(failure=error.strerror or str(error) or type(error).__name__)
    return came


class _Message(NamedTuple):
    host: str
    port: int
    is_secure: bool
    text: bytes
    """All that is sent."""


def message_of(request: AdviceRequest) -> _Message:
    """Give what is sent, and where; raises `OSError` for what no request can be made of."""
    try:
        url = urlsplit(request.url)
        if url.scheme not in _PORTS:
            raise ValueError("its URL is neither http nor https")
        # RFC 9112, 9.3: who sends no second request has to say so.
        fields = [("Host", url.netloc.rpartition("@")[2]), *request.fields, ("Connection", "close")]
        lines = [f"GET {url.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        if not (all(map(_is_line, lines)) and request.url.isascii()):
            raise ValueError("it has a character that no request has")
        port = _PORTS[url.scheme] if url.port is None else url.port
        text = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return _Message(url.hostname or "", port, url.scheme == "https", text)
    except ValueError as error:
        raise OSError(f"no request can be made: {error}") from error


def _trust(tls: ssl.SSLContext | None) -> ssl.SSLContext:
    if tls is None:
        return usual_authorities()
    tls.set_alpn_protocols([PROTOCOL])
    return tls
