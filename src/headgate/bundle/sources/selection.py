"""Which recorded responses and header fields a bundle keeps, and the messages about those that are left out.

A bundle keeps what describes the response, and drops what is for one connection, one user, a whole host or the
transfer. Like the published tools it drops the fields that a signed exchange may not have ("stateful headers" and
hop-by-hop ones), and some of the same kinds.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from headgate.bundle.model import Exchange
from headgate.http.fields import TOKEN, is_token
from headgate.http.url import has_credentials, parse_url, without_fragment

MessageCallback: TypeAlias = Callable[[str], None]
"""Called with a message for the user."""

_MAX_SHOWN = 120
"""Maximum characters of an example: a data: URL can be long."""

_WHOLE_RANGE = re.compile(r"bytes 0-([0-9]{1,18})/([0-9]{1,18})")
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
_DIGEST_FIELDS = ("content-digest", "content-md5", "digest", "repr-digest")
"""Computed over the coded representation; wrong after its coding changes."""
_SINGLE_VALUED = frozenset({"content-location", "content-type", "date", "etag", "expires", "last-modified", "location"})
"""Fields with a single value, of which the last counts; values of others are joined."""
_DEFAULT_TYPE = "application/octet-stream"
_MEDIA_TYPE = re.compile(rf"{TOKEN}/{TOKEN}\s*+(?:;.*)?")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]+")
_TEXT_TYPES = re.compile(r"\+(?:json|xml)|(?:java|ecma)script|/(?:json|xml)")
"""In a media type other than text/* that contains text."""


def ignore_message(_message: str) -> None:
    """Ignore the message."""


class SkipExchange(Exception):
    """An exchange that is left out; the text is the reason, which several may share."""


class SkipReport:
    """Counts what is left out of a bundle."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[int, str]] = {}

    def add(self, reason: str, example: str) -> None:
        """Count an exchange for `reason`; the first example of each is shown."""
        count, first = self._reasons.get(reason, (0, example))
        self._reasons[reason] = count + 1, first

    def tell(self, tell: MessageCallback, *, where: str) -> None:
        """Pass one message for each reason, in the order of their first examples."""
        for reason, (count, example) in self._reasons.items():
            shown = repr(example if len(example) <= _MAX_SHOWN else f"{example[: _MAX_SHOWN - 3]}...")
            tell(f"{where}: left out {f'{count}, such as ' if count > 1 else ''}{shown}: {reason}")


def keep_latest(kept: dict[str, Exchange], exchange: Exchange, left_out: SkipReport) -> None:
    """Keep of each URL the last exchange with a 2xx status, or else the last.

    A URL keeps the position where it was first seen, so a page stays before the resources that it loads.
    """
    earlier = kept.get(exchange.url)
    if earlier is not None:
        left_out.add("the URL has several responses; the last with a 2xx status is used", exchange.url)
    if earlier is None or _succeeds(exchange) or not _succeeds(earlier):
        kept[exchange.url] = exchange


def normalize_http_url(text: str) -> str:
    """Return a URL in normal form, without fragment; raises `SkipExchange` for another than an http or https URL."""
    url = parse_url(text)
    if url is None:
        raise SkipExchange("not a URL")
    if not url.startswith(("http://", "https://")):
        raise SkipExchange("not http or https")
    if has_credentials(url):
        raise SkipExchange("a URL with a user name or a password in it")
    return without_fragment(url)


def check_status(status: int) -> None:
    """Raise `SkipExchange` for a status that has a meaning only with its request.

    `as_complete_response` checks 206 when the body is known.
    """
    if not 100 <= status <= 999:
        raise SkipExchange("without a response")
    if status < 200:
        raise SkipExchange("an interim response")
    if status == 304:
        raise SkipExchange("304: the response is missing, it was in a cache")


def as_complete_response(status: int, headers: dict[str, str], length: int) -> tuple[int, dict[str, str]]:
    """Return the status and headers of a response without its request, for a body of `length` bytes.

    Browsers request media by range, and a 206 may contain all of it. Raises `SkipExchange` for a part.
    """
    if status != 206:
        return status, headers
    found = _WHOLE_RANGE.fullmatch(headers.get("content-range", ""))
    if found is None or not int(found[1]) + 1 == int(found[2]) == length:
        raise SkipExchange("206: a part of a response")
    return 200, {name: value for name, value in headers.items() if name != "content-range"}


def _succeeds(exchange: Exchange) -> bool:
    return 200 <= exchange.status < 300


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
        earlier = headers.get(name, "") if name not in _SINGLE_VALUED else ""
        headers[name] = f"{earlier}, {value}" if earlier and value else earlier or value
    return headers


def with_content_type(headers: Mapping[str, str], otherwise: str = "") -> dict[str, str]:
    """Return the headers with a content type: their own, else `otherwise`, else application/octet-stream.

    Every response in a bundle has one (3.4 step 9), and readers do not guess.
    """
    found = next(filter(_MEDIA_TYPE.fullmatch, (headers.get("content-type", ""), _value(otherwise))), _DEFAULT_TYPE)
    return {**headers, "content-type": found}


def without_content_encoding(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of the same representation without its content coding.

    A strong tag must not be shared by two codings: "a strong validator … needs to be different" (RFC 9110, 8.8.1).
    """
    headers = {name: value for name, value in headers.items() if name not in (*_DIGEST_FIELDS, "content-encoding")}
    etag = headers.get("etag", "")
    if etag.startswith('"'):
        headers["etag"] = f"W/{etag}"
    return headers


def essence(content_type: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def with_utf8_charset(content_type: str) -> str:
    """Return the content type of the same text in UTF-8; unchanged for JSON, and for types without text."""
    kind, *parameters = content_type.split(";")
    if "json" in essence(kind) or not (kind.strip().lower().startswith("text/") or _TEXT_TYPES.search(kind.lower())):
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
