"""Which headers of a response are stored in a bundle, and how they change with its content coding.

A bundle keeps what describes the response, and drops what is for one connection, one user, a whole host or the
transfer. Like the published tools it drops the fields that a signed exchange may not have ("stateful headers" and
hop-by-hop ones), and some of the same kinds.
"""

import re
from collections.abc import Iterable, Mapping

from headgate.http import is_token

# fmt: off
DROPPED_HEADERS = frozenset({
    # Of one connection (RFC 9110, 7.6.1), or of the transfer.
    "alt-svc", "connection", "content-length", "http2-settings", "keep-alive", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
    # For one user.
    "authentication-control", "authentication-info", "clear-site-data", "optional-www-authenticate",
    "proxy-authenticate", "proxy-authentication-info", "sec-websocket-accept", "sec-websocket-extensions",
    "sec-websocket-protocol", "sec-websocket-version", "set-cookie", "set-cookie2", "setprofile", "www-authenticate",
    # For a whole host.
    "expect-ct", "public-key-pins", "public-key-pins-report-only", "strict-transport-security",
    # The age in a cache (RFC 9111, 5.1), and what the bundle's index states.
    "age", "variant-key", "variants",
})
# fmt: on
"""Names of the response fields that sources drop."""

_OF_THE_BYTES = ("content-digest", "content-md5", "digest", "repr-digest")
"""Computed over the coded representation; wrong after its coding changes."""
_SINGLE = frozenset({"content-location", "content-type", "date", "etag", "expires", "last-modified", "location"})
"""Fields with a single value, of which the last counts; values of others are joined."""
_UNTYPED = "application/octet-stream"
_MEDIA_TYPE = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+/[!#$%&'*+\-.^_`|~0-9A-Za-z]+\s*(?:;.*)?")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]+")
_WORDS = re.compile(r"\+(?:json|xml)|(?:java|ecma)script|/(?:json|xml)")
"""In a media type other than text/* that contains text."""


def filter_headers(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the fields that a bundle keeps: names in lower case, values as Latin-1, the values of one name joined.

    Pseudo-fields of HTTP/2 and invalid fields are dropped too.
    """
    pairs = [(name.strip().lower(), _value(value)) for name, value in fields]
    named = {option.strip().lower() for name, value in pairs if name == "connection" for option in value.split(",")}
    headers: dict[str, str] = {}
    for name, value in pairs:
        if name in DROPPED_HEADERS or name in named or not is_token(name):
            continue
        earlier = headers.get(name, "") if name not in _SINGLE else ""
        headers[name] = f"{earlier}, {value}" if earlier and value else earlier or value
    return headers


def with_content_type(headers: Mapping[str, str], otherwise: str = "") -> dict[str, str]:
    """Return the headers with a content type: their own, else `otherwise`, else application/octet-stream.

    Every response in a bundle has one (3.4 step 9), and readers do not guess.
    """
    found = next(filter(_MEDIA_TYPE.fullmatch, (headers.get("content-type", ""), _value(otherwise))), _UNTYPED)
    return {**headers, "content-type": found}


def with_content_encoding(headers: Mapping[str, str], coding: str | None) -> dict[str, str]:
    """Return the headers of the same representation in another content coding; None for the plain bytes.

    A strong tag must not be shared by two codings: "a strong validator … needs to be different" (RFC 9110, 8.8.1).
    """
    headers = {name: value for name, value in headers.items() if name not in (*_OF_THE_BYTES, "content-encoding")}
    etag = headers.get("etag", "")
    if etag.startswith('"'):
        headers["etag"] = f"W/{etag}"
    return headers if coding is None else {**headers, "content-encoding": coding}


def essence(content_type: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def with_utf8_charset(content_type: str) -> str:
    """Return the content type of the same text in UTF-8; unchanged for JSON, and for types without text."""
    kind, *parameters = content_type.split(";")
    if "json" in essence(kind) or not (kind.strip().lower().startswith("text/") or _WORDS.search(kind.lower())):
        return content_type
    others = [part for part in parameters if part.strip() and not part.strip().lower().startswith("charset=")]
    return ";".join([kind.strip(), *others, " charset=utf-8"])


def _value(value: str) -> str:
    """Return a value as its bytes read as Latin-1, without control characters."""
    if any(character > "\xff" for character in value):
        value = value.encode("utf-8", "replace").decode("latin-1")
    # Some tools join fields with line breaks.
    lines = (line.strip() for line in value.replace("\r", "\n").split("\n"))
    return _CONTROLS.sub(" ", ", ".join(line for line in lines if line)).strip()
