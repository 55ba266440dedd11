"""What a gate publishes for the operator's own agent: the directory of its keys, and its Signature Agent Card.

The directory is signed anew every hour, and only for hosts that are the operator's: for any Host of a request, it would
prove that another site has these keys.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final

import msgspec

from headgate.errors import fail_if, naming
from headgate.http.h1 import RequestHead
from headgate.http.url import parse_url
from headgate.identity import SigningKey, agent_url, read_signing_keys, sign_directory, write_directory
from headgate.identity.directory import MEDIA_TYPE
from headgate.identity.message import normal_authority
from headgate.identity.url import PATH
from headgate.origin.response import Response

MAX_AGE: Final = 3_600.0
"""Seconds for which a response is fresh, and until a directory is signed again."""


class AgentResources:
    """Answers requests for the directory and the cards: called with a request, returns a response or None.

    `files` are contents by name: key files, and cards, which are JSON objects with a `client_id`. `authorities` are the
    hosts for which the directory is signed. `clock` returns seconds since 1970. Raises `ConfigurationError`.
    """

    def __init__(self, files: Mapping[str, bytes], authorities: Iterable[str], *, clock: Callable[[], float]) -> None:
        self._keys: list[SigningKey] = []
        self._cards: dict[bytes, Response] = {}
        for name, content in files.items():
            with naming(repr(name)):
                path = _path_of_card(content)
                if path:
                    self._cards[path.encode()] = _response([("Content-Type", "application/json")], content)
                else:
                    self._keys += read_signing_keys(content)
        self._body = write_directory(key.public for key in self._keys)
        self._unsigned = _response([("Content-Type", MEDIA_TYPE)], self._body)
        self._signed = dict.fromkeys(map(normal_authority, authorities), (-inf, self._unsigned))
        self._clock = clock

    def __call__(self, request: RequestHead) -> Response | None:
        """Answer a request; None for another path."""
        if request.method not in {b"GET", b"HEAD"} or not request.target.startswith(b"/.well-known/"):
            return None
        if request.path != PATH.encode() or not self._keys:
            return self._cards.get(request.path)
        authority, now = normal_authority(request.host.decode("latin-1")), self._clock()
        if authority not in self._signed:
            return self._unsigned
        signed_at, response = self._signed[authority]
        if not 0 <= now - signed_at < MAX_AGE:
            response = _response(sign_directory(self._body, self._keys, authority, now=now), self._body)
            self._signed[authority] = now, response
        return response


def _path_of_card(content: bytes) -> str:
    """Return the path of the URL of a card; empty for another content."""
    try:
        url = msgspec.json.decode(content, type=_Card).client_id
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    path = (parse_url(url) or "").partition("://")[2].partition("/")[2]
    fail_if(
        agent_url(url) is None or not path.startswith(".well-known/"),
        f"invalid client_id {url!r:.80}; expected an https URL whose path begins with /.well-known/",
    )
    return f"/{path}"


class _Card(msgspec.Struct):
    client_id: str


def _response(fields: list[tuple[str, str]], body: bytes) -> Response:
    lines = [(name.lower().encode(), value.encode()) for name, value in fields]
    more = [(b"cache-control", b"max-age=%d" % MAX_AGE), (b"content-length", b"%d" % len(body))]
    return Response(200, [*lines, (b"x-content-type-options", b"nosniff"), *more], body)
