"""What identifying and matching need to know of a request, whichever server received it.

The gateway fills a `RequestInfo` from its parser, the middleware from the scope or the environ. The functions below it
read the addresses in `Forwarded` and `X-Forwarded-For`, nearest hop first, whether they are trusted or not: nothing
here raises, whatever the input, and everything takes time linear in its length.
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_to_bytes

import msgspec

from headgate.http.fields import TOKEN


class RequestInfo(msgspec.Struct):
    """A request's head: bytes as they came, field names in lower case."""

    method: bytes
    """The method, as sent: methods are case-sensitive."""

    path: bytes
    """The path without the query, percent-encoded as sent."""

    host: bytes
    """The value of Host, port and all; empty when it is absent."""

    fields: list[tuple[bytes, bytes]]
    """Every field line in order: (name in lower case, value)."""

    peer: str
    """The address at the other end of the connection, without its port; empty when it has none (a unix socket)."""

    query: bytes = b""
    """What follows the `?` of the target."""

    agent: str = ""
    """The URL that identifies the verified agent that sent it; empty for none."""

    def field(self, name: bytes) -> bytes | None:
        """Return the value of the field `name` (lower case), or None when it is absent.

        Several lines make one value, joined with a comma (RFC 9110, section 5.3).
        """
        return field_value(self.fields, name)

    def single_field(self, name: bytes) -> bytes | None:
        """Return the value of the field `name` (lower case), or None when it is absent or has more than one line."""
        values = [value for field_name, value in self.fields if field_name == name]
        return values[0] if len(values) == 1 else None


def field_value(fields: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the value of the field `name` among field lines; see `RequestInfo.field`."""
    values = [value for field_name, value in fields if field_name == name]
    return b", ".join(values) if values else None


MAX_VALUE_SIZE = 8192
"""Bytes of a field value that are read: about a hundred hops. A longer value is treated as malformed."""

# RFC 7239, section 4: forwarded-pair = token "=" ( token / quoted-string ), pairs joined by ";", elements by ",".
# Every repetition is possessive (it never backtracks), so that matching takes linear time.
_TOKEN = TOKEN.encode()
_QUOTED = rb'"(?:[\t \x21\x23-\x5B\x5D-\x7E\x80-\xFF]++|\\[\t \x21-\x7E\x80-\xFF])*+"'
_STEP = re.compile(rb"[ \t]*+(?:(" + _TOKEN + rb")=(" + _TOKEN + rb"|" + _QUOTED + rb"))?+[ \t]*+([;,]|\Z)")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_LONGEST_NODE = 64
"""Bytes: an IPv6 address with its zone, brackets and port is shorter."""


def forwarded_hops(value: bytes) -> Iterator[str]:
    """Yield the `for` of each element of `Forwarded`, last element first (RFC 7239, section 5.2).

    The whole value must parse: an open quote of a client could otherwise hide what a proxy added after it.
    """
    if len(value) > MAX_VALUE_SIZE:
        return
    hops: list[str] = []
    pairs: dict[bytes, bytes] = {}
    position, repeated = 0, False
    while position <= len(value):
        step = _STEP.match(value, position)
        if step is None:
            return
        name, text, ending = step.groups()
        if name is not None:
            # Section 4: "each parameter MUST NOT occur more than once per field-value" element.
            repeated = repeated or name.lower() in pairs
            pairs[name.lower()] = text
        if ending != b";":
            if pairs:
                hops.append("" if repeated else _node(pairs.get(b"for", b"")))
            pairs, repeated = {}, False
        position = step.end() + (not ending)
    yield from reversed(hops)


def x_forwarded_for_hops(value: bytes) -> Iterator[str]:
    """Yield each address of `X-Forwarded-For`, last first; empty members are skipped."""
    end = len(value) if len(value) <= MAX_VALUE_SIZE else -1
    while end >= 0:
        comma = value.rfind(b",", 0, end)
        if member := value[comma + 1 : end].strip():
            yield address_in(member)
        end = comma


def address_in(node: bytes) -> str:
    """Return the address in `node`, without port and brackets; an empty string if there is none.

    Reads `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` and `[2001:db8::1]:80`. The result consists of
    hexadecimal digits, dots and colons, and may still be invalid.
    """
    if len(node) > _LONGEST_NODE:
        return ""
    text = node.decode("latin-1")
    if text.startswith("["):
        text, closed, port = text[1:].partition("]")
        well_formed = bool(closed) and (not port or port.startswith(":"))
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
        well_formed = True
    else:
        well_formed = True
    return text if well_formed and text.strip("0123456789abcdefABCDEF.:") == "" else ""


def _node(text: bytes) -> str:
    """Read the value of one `for`, quoted or not."""
    if text.startswith(b'"'):
        text = _ESCAPED.sub(rb"\1", text[1:-1])
    return address_in(text)


_PARAMETERS = re.compile(rb";[^/]*+")


def plain_path(path: bytes) -> bytes:
    """Return `path` as origins understand it: percent-decoded, without parameters, dot segments or doubled slashes.

    `/%61pi`, `//api` and `/x/../api` reach the resource that `/api` reaches, so they must meet the same rule. Servlet
    containers remove the parameters of a segment first: there, `/x/..;/api` does, too. Servers on Windows take a
    backslash for a slash.
    """
    if b";" in path:
        path = _PARAMETERS.sub(b"", path)
    if b"%" in path:
        path = unquote_to_bytes(path)
    path = path.replace(b"\\", b"/")
    if b"//" not in path and b"/." not in path:
        return path
    kept: list[bytes] = []
    segments = path.split(b"/")
    for segment in segments:
        if segment == b"..":
            del kept[-1:]
        elif segment not in (b"", b"."):
            kept.append(segment)
    ends_open = segments[-1] in (b"", b".", b"..") and bool(kept)
    return b"/" + b"/".join(kept) + (b"/" if ends_open else b"")


def path_segment(info: RequestInfo, number: int) -> bytes:
    """Return a segment of the plain path, the first one for 1; empty if there is none."""
    segments = plain_path(info.path).split(b"/")
    return segments[number] if number < len(segments) else b""


def cookie_value(info: RequestInfo, cookie: re.Pattern[bytes]) -> bytes:
    """Return the value of a cookie, percent-decoded; empty if it is absent, quoted, or there more than once.

    An application may read either of two, and quoted values can be written in many ways. `cookie` finds the values.
    """
    values = [value for name, line in info.fields if name == b"cookie" for value in cookie.findall(line)]
    value = values[0].strip() if len(values) == 1 else b""
    return unquote_to_bytes(value) if value[:1] != b'"' else b""
