"""Which domain a request belongs to: routes are tried in order, the first that matches names the domain.

A route without conditions matches every request, so the last one usually has none. A request that matches no route
belongs to no domain and is not limited.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Final, cast
from urllib.parse import unquote_to_bytes

import msgspec

from headgate.errors import fail_if
from headgate.http.fields import TOKEN, is_token
from headgate.limit.messages import credential
from headgate.origin.checks import naming
from headgate.origin.request_info import MAX_VALUE_SIZE, RequestInfo

_HOST = re.compile(r"[^\s/?#@\\,]+")
_LOWERED = frozenset({"get", "head", "post", "put", "delete", "connect", "options", "trace", "patch"})
# RFC 9110, section 10.1.5: products and comments, here of two levels. WSGI servers join the lines of a repeated field
# with a comma, so none may stand between them. Every repetition is possessive: matching takes linear time.
_USER_AGENT = re.compile(rb"(?:[^,()]++|\((?:[^()]++|\([^()]*+\))*+\))*+")
# The name of a product, also in a comment, but not its version, a part of another name, or a segment of a URL.
_PRODUCT = re.compile(rb"(?<![^\t (;,])" + TOKEN.encode() + rb"(?![^\t /);,])")


class Route(msgspec.Struct, frozen=True):
    """What a request must have to belong to `domain`; an empty string sets no condition."""

    domain: str
    """The domain's name."""

    path_prefix: str = ""
    """The path, percent-decoded and without dot segments, starts with this. `/api/` matches whole segments."""

    host: str = ""
    """The requested host: any case; any port unless this names one."""

    method: str = ""
    """The method, exactly: methods are case-sensitive. GET includes HEAD, which costs the application as much."""

    header: str = ""
    """A field that must be present, in any case."""

    value: str = ""
    """The value of `header`: compared exactly, with or without its parameters; the scheme of Authorization in any
    case. A field of several lines has no value."""

    user_agent: str = ""
    """A product of User-Agent, in any case: `ExampleBot` is in `ExampleBot/1.0 (+https://example.org/)` and in
    `Mozilla/5.0 (compatible; ExampleBot/1.0)`. A field that is malformed, repeated or longer than 8 KiB has none."""

    @property
    def matches_all(self) -> bool:
        """Whether it is without conditions."""
        return not any(getattr(self, name) for name in _CONDITIONS)


class _Seen:
    """What the conditions of routes read of a request, each part once."""

    def __init__(self, info: RequestInfo) -> None:
        self.info = info
        self._values: dict[bytes, tuple[bytes, bytes]] = {}

    @cached_property
    def path(self) -> bytes:
        """The plain path."""
        return plain_path(self.info.path)

    @cached_property
    def products(self) -> frozenset[bytes]:
        """The names of the products in User-Agent, in lower case."""
        value = self.info.single_field(b"user-agent") or b""
        well_formed = len(value) <= MAX_VALUE_SIZE and _USER_AGENT.fullmatch(value)
        return frozenset(_PRODUCT.findall(value.lower()) if well_formed else ())

    def values(self, name: bytes) -> tuple[bytes, bytes]:
        """Return the value of a field, and that without its parameters."""
        if name not in self._values:
            # A repeated field has no value: which of its lines the application reads is unknown, and WSGI joins them.
            value = credential(name, (self.info.single_field(name) or b"").strip())
            self._values[name] = value, value.partition(b";")[0].rstrip()
        return self._values[name]


_Test = Callable[[_Seen], bool]


class Routes:
    """Routes in order, compiled once; raises `ConfigurationError` for one that cannot match any request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        listed = tuple(_checked(routes))
        self._compiled: list[tuple[str, tuple[_Test, ...]]] = [(route.domain, _tests(route)) for route in listed]
        self.domains = tuple(dict.fromkeys(route.domain for route in listed))
        """The domains of the routes, each once."""
        self.only: str | None = listed[0].domain if listed and listed[0].matches_all else None
        """The domain of every request, when the first route is without conditions: then matching is unnecessary."""

    def match(self, info: RequestInfo) -> str | None:
        """Return the domain of the first route that matches, or None: no domain, not limited."""
        if self.only is not None:
            return self.only
        seen = _Seen(info)
        for domain, tests in self._compiled:
            if all(test(seen) for test in tests):
                return domain
        return None


def _checked(routes: Iterable[object]) -> Iterator[Route]:
    """Yield the routes; raises `ConfigurationError` for what is not a list of them."""
    for route in routes if isinstance(routes, Iterable) else (None,):
        fail_if(
            not isinstance(route, Route),
            f"expected a list of Route, such as [Route('api', path_prefix='/api/')], got {routes!r:.80}",
        )
        yield cast("Route", route)


def plain_path(path: bytes) -> bytes:
    """Return `path` as origins understand it: percent-decoded, without dot segments or doubled slashes.

    `/%61pi`, `//api` and `/x/../api` reach the resource that `/api` reaches, so they must meet the same rule.
    """
    if b"%" in path:
        path = unquote_to_bytes(path)
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


def _tests(route: Route) -> tuple[_Test, ...]:
    """Return what a request must pass. Raises `ConfigurationError` for a route that no request can match."""
    for name in Route.__struct_fields__:
        value = getattr(route, name)
        fail_if(not isinstance(value, str), f"the {name} of a route must be text, got {value!r:.80}")
    with naming(f"domain {route.domain!r}"):
        fail_if(
            not route.header and route.value, f"value {route.value!r} without a header; add header = 'NAME' beside it"
        )
        return tuple(make(route) for name, make in _CONDITIONS.items() if getattr(route, name))


def _path_starts(route: Route) -> _Test:
    prefix = route.path_prefix.encode("utf-8", "replace")
    plain = plain_path(prefix).decode("utf-8", "replace")
    fail_if(
        route.path_prefix != plain or not plain.startswith("/"),
        f"invalid path_prefix {route.path_prefix!r}; expected it normalized: {'/' + plain.lstrip('/')!r}",
    )
    return lambda seen: seen.path.startswith(prefix)


def _host_is(route: Route) -> _Test:
    fail_if(
        not _HOST.fullmatch(route.host),
        f"invalid host {route.host!r}; expected a form such as 'example.org', without scheme and path",
    )
    host = route.host.lower().rstrip(".").encode()
    if _without_port(host) != host:
        return lambda seen: seen.info.host.lower() == host
    return lambda seen: _without_port(seen.info.host.lower()).rstrip(b".") == host


def _without_port(host: bytes) -> bytes:
    """Drop `:8080` from the end; the colons inside an IPv6 literal's brackets stay."""
    name, colon, port = host.rpartition(b":")
    return name if colon and (port.isdigit() or not port) else host


def _method_is(route: Route) -> _Test:
    method = route.method
    fail_if(
        not is_token(method) or method in _LOWERED,
        f"unknown method {method!r}; methods are case-sensitive, try {method.upper().strip()!r}",
    )
    methods = (b"GET", b"HEAD") if method == "GET" else (method.encode(),)
    return lambda seen: seen.info.method in methods


def _user_agent_has(route: Route) -> _Test:
    fail_if(
        not is_token(route.user_agent) or route.user_agent == "*",
        f"invalid user_agent {route.user_agent!r}; expected one product without its version, such as 'ExampleBot'",
    )
    name = route.user_agent.lower().encode()
    return lambda seen: name in seen.products


def _field_has(route: Route) -> _Test:
    fail_if(not is_token(route.header), f"invalid header name {route.header!r}; expected one such as 'Sec-Purpose'")
    name, value = route.header.lower().encode(), route.value.strip()
    if not value:
        return lambda seen: seen.info.field(name) is not None
    wanted = credential(name, value.encode())
    return lambda seen: wanted in seen.values(name)


_CONDITIONS: Final[dict[str, Callable[[Route], _Test]]] = {
    "path_prefix": _path_starts,
    "host": _host_is,
    "method": _method_is,
    "user_agent": _user_agent_has,
    "header": _field_has,
}
"""The conditions by their field of `Route`, cheap ones first: each checks the field and returns its test."""
