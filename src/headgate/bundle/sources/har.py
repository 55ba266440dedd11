"""Exchanges from a HAR 1.2, as saved by browsers: the responses to GET requests.

A HAR contains decoded bodies, and text as characters. So the fields of content codings are removed, and text is stored
as UTF-8 and labelled so.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from headgate.bundle.files.payloads import Spool
from headgate.bundle.model import Exchange
from headgate.bundle.sources.selection import (
    MessageCallback,
    SkipExchange,
    SkipReport,
    as_complete_response,
    check_status,
    filter_headers,
    ignore_message,
    keep_latest,
    normalize_http_url,
    with_content_type,
    with_utf8_charset,
    without_content_encoding,
)
from headgate.errors import ConfigurationError, explaining, fail_if

MAX_BYTES: Final = 1 << 30
"""Bytes of a file, which is decoded in memory."""
_BOM: Final = b"\xef\xbb\xbf"
_SURROGATES: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Surrogates of UTF-16 in JSON: pairs, and single ones."""
_CHARSET: Final = re.compile(r"(?i);\s*charset\s*=\s*\"?([^\s;\"]+)")
_PERSONAL: Final = frozenset({"authorization", "cookie"})


class _Field(msgspec.Struct):
    name: str
    value: str | None = None


class _Request(msgspec.Struct):
    method: str
    url: str
    headers: list[_Field] | None = None


class _Content(msgspec.Struct, rename={"mime_type": "mimeType"}):
    size: float | None = None
    mime_type: str | None = None
    text: str | None = None
    encoding: str | None = None


class _Response(msgspec.Struct):
    status: int
    headers: list[_Field] | None = None
    content: _Content | None = None


class _Entry(msgspec.Struct):
    request: _Request
    response: _Response


class _Started(msgspec.Struct, rename={"at": "startedDateTime"}):
    at: str


class _Log(msgspec.Struct):
    entries: list[msgspec.Raw]


class _Har(msgspec.Struct):
    log: _Log


def har(path: Path, *, tell: MessageCallback = ignore_message, max_bytes: int = MAX_BYTES) -> Iterator[Exchange]:
    """Yield the exchanges of a HAR: for each URL the last response with a 2xx status, or else the last.

    Left out, with a message: requests other than GET over http or https, entries without response or saved body, 304
    and partial responses, malformed entries. Raises `ConfigurationError` for a file that is not a HAR, and for
    one of more than `max_bytes`; decoded bodies are never longer than the file.
    """
    with explaining(f"cannot read {path}", "name a HAR file"), path.open("rb") as file:
        source = file.read(max_bytes + 1)
    fail_if(len(source) > max_bytes, f"{path} has more than {max_bytes} bytes; save fewer requests")
    return _exchanges(_entries(source.removeprefix(_BOM), path), path, tell)


def _entries(source: bytes, path: Path) -> list[msgspec.Raw]:
    """Decode a HAR; its entries are decoded one by one later."""
    try:
        try:
            return msgspec.json.decode(source, type=_Har).log.entries
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # Browsers write single surrogates, which strict decoders refuse.
            repaired = _SURROGATES.sub(lambda found: rb"\ufffd" if found["lone"] else found[0], source)
            return msgspec.json.decode(repaired, type=_Har).log.entries
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not a HAR: {error}; save one from a browser's network panel") from None


def _exchanges(raws: list[msgspec.Raw], path: Path, tell: MessageCallback) -> Iterator[Exchange]:
    left_out, spool = SkipReport(), Spool()
    selected: dict[str, Exchange] = {}
    personal = 0
    for raw in _in_order(raws):
        url = "an entry"
        try:
            entry = _entry(raw)
            url = entry.request.url
            keep_latest(selected, _exchange(entry, spool), left_out)
            personal += any(field.name.lower() in _PERSONAL for field in entry.request.headers or ())
        except SkipExchange as skipped:
            left_out.add(str(skipped), url)
    yield from selected.values()
    left_out.tell(tell, where=str(path))
    if personal:
        tell(f"{path}: {personal} of the requests had cookies or credentials; check the responses for secrets")
    if not selected:
        tell(f"{path}: found no exchange to bundle; save the HAR with content")


def _in_order(raws: list[msgspec.Raw]) -> list[msgspec.Raw]:
    """Return the entries, the oldest first; unchanged where a time cannot be read."""
    try:
        started = [datetime.fromisoformat(msgspec.json.decode(raw, type=_Started).at) for raw in raws]
        by_time = sorted(zip(started, range(len(raws)), strict=True))
    except (ValueError, TypeError):  # no time, or times with and without a zone
        return raws
    return [raws[position] for _, position in by_time]


def _entry(raw: msgspec.Raw) -> _Entry:
    try:
        return msgspec.json.decode(raw, type=_Entry, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SkipExchange(f"malformed: {error}") from None


def _exchange(entry: _Entry, spool: Spool) -> Exchange:
    """Return the exchange of an entry; raises `SkipExchange` for one that a bundle should not hold."""
    if entry.request.method.upper() != "GET":
        raise SkipExchange("not a GET request")
    url, response = normalize_http_url(entry.request.url), entry.response
    check_status(response.status)
    headers = filter_headers((field.name, field.value or "") for field in response.headers or ())
    if "content-encoding" in headers:
        headers = without_content_encoding(headers)
    content = response.content or _Content()
    headers = with_content_type(headers, content.mime_type or "")
    if content.text is None:
        payload = _no_body(response.status, content)
    elif content.encoding:
        payload = _bytes(content)
    else:
        payload = _text(content, headers["content-type"])
        if not payload.isascii() or "charset" in headers["content-type"].lower():
            headers["content-type"] = with_utf8_charset(headers["content-type"])
    status, headers = as_complete_response(response.status, headers, len(payload))
    return Exchange(url, status, headers, spool.append((payload,)))


def _no_body(status: int, content: _Content) -> bytes:
    """Return an empty body; raises `SkipExchange` if the response had a body that was not saved."""
    needs_body = 200 <= status < 300 and status not in (204, 205)
    if needs_body if content.size is None else content.size > 0:
        raise SkipExchange("its body was not saved")
    return b""


def _bytes(content: _Content) -> bytes:
    if content.encoding != "base64":
        raise SkipExchange(f"a body in {content.encoding!r}, expected base64")
    text = content.text or ""
    packed = "".join(text.split())
    try:
        payload = b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        raise SkipExchange("a body that is not base64") from None
    # Some tools state the number of encoded characters as the size.
    return payload if content.size in (len(text), len(packed)) else _complete(payload, content)


def _text(content: _Content, content_type: str) -> bytes:
    payload = (content.text or "").encode()
    found = _CHARSET.search(content_type)
    # In another charset the text may have been longer than in UTF-8.
    if found is None or found[1].lower() == "utf-8":
        _complete(payload, content, missing=len(_BOM))
    return payload


def _complete(payload: bytes, content: _Content, *, missing: int = 0) -> bytes:
    if content.size is not None and content.size > len(payload) + missing:
        raise SkipExchange("its body was saved in part")
    return payload
