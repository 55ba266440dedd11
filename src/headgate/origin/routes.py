"""Which domain a request belongs to: routes are tried in order, the first that matches names the domain.

A route without conditions matches every request, so the last one usually has none. A request that matches no route
belongs to no domain and is not limited.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote_to_bytes

import msgspec

from headgate.errors import ConfigurationError
from headgate.http.fields import is_token
from headgate.limit.messages import credential
from headgate.origin.request_info import RequestInfo

_Test = Callable[[RequestInfo], bool]

_HOST = re.compile(r"[^\s/?#@\\,]+")
_LOWERED = frozenset({"get", "head", "post", "put", "delete", "connect", "options", "trace", "patch"})


class Route(msgspec.Struct, frozen=True):
    """What a request must have to belong to `domain`; an empty string sets no condition."""

    domain: str
    """The domain's name."""

    path_prefix: str = ""
    """The path, percent-decoded and without dot segments, starts with this. `/api/` matches whole segments."""

    host: str = ""
    """The requested host: any case; any port unless this names one."""

    method: str = ""
    """The method, exactly: methods are case-sensitive."""

    header: str = ""
    """A field that must be present, in any case."""

    value: str = ""
    """The value of `header`: compared exactly, with or without its parameters; the scheme of Authorization in any
    case. A field of several lines has no value."""

    @property
    def matches_all(self) -> bool:
        """Whether it is without conditions."""
        return not (self.path_prefix or self.host or self.method or self.header)


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
        for domain, tests in self._compiled:
            if all(test(info) for test in tests):
                return domain
        return None


def _checked(routes: Iterable[object]) -> Iterator[Route]:
    """Yield the routes; raises `ConfigurationError` for what is not a list of them."""
    for route in routes if isinstance(routes, Iterable) else (None,):
        if not isinstance(route, Route):
            raise ConfigurationError(
                f"expected a list of Route, such as [Route('api', path_prefix='/api/')], got {routes!r:.80}"
            )
        yield route


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


def _check(route: Route) -> None:
    """Raise `ConfigurationError` for a route that cannot match: its domain would limit nothing."""
    for name in Route.__struct_fields__:
        if not isinstance(getattr(route, name), str):
            raise ConfigurationError(f"the {name} of a route must be text, got {getattr(route, name)!r:.80}")
    path = plain_path(route.path_prefix.encode("utf-8", "replace")).decode("utf-8", "replace")
    checks = (
        (route.value and not route.header, f"value {route.value!r} without a header; add header = 'NAME' beside it"),
        (
            route.path_prefix and (route.path_prefix != path or path[0] != "/"),
            f"invalid path_prefix {route.path_prefix!r}; expected it normalized: {'/' + path.lstrip('/')!r}",
        ),
        (
            route.host and not _HOST.fullmatch(route.host),
            f"invalid host {route.host!r}; expected a form such as 'example.org', without scheme and path",
        ),
        (
            route.method and (not is_token(route.method) or route.method in _LOWERED),
            f"unknown method {route.method!r}; methods are case-sensitive, try {route.method.upper().strip()!r}",
        ),
        (
            route.header and not is_token(route.header),
            f"invalid header name {route.header!r}; expected one such as 'Sec-Purpose'",
        ),
    )
    for wrong, explanation in checks:
        if wrong:
            raise ConfigurationError(f"domain {route.domain!r}: {explanation}")


def _tests(route: Route) -> tuple[_Test, ...]:
    _check(route)
    makers = (
        (route.path_prefix, _path_starts),
        (route.host, _host_is),
        (route.method, _method_is),
    )
    tests = [maker(wanted) for wanted, maker in makers if wanted]
    if route.header:
        tests.append(_field_has(route.header, route.value))
    return tuple(tests)


def _path_starts(wanted: str) -> _Test:
    prefix = wanted.encode()
    return lambda info: plain_path(info.path).startswith(prefix)


def _host_is(wanted: str) -> _Test:
    host = wanted.lower().rstrip(".").encode()
    if _without_port(host) != host:
        return lambda info: info.host.lower() == host
    return lambda info: _without_port(info.host.lower()).rstrip(b".") == host


def _without_port(host: bytes) -> bytes:
    """Drop `:8080` from the end; the colons inside an IPv6 literal's brackets stay."""
    name, colon, port = host.rpartition(b":")
    return name if colon and (port.isdigit() or not port) else host


def _method_is(wanted: str) -> _Test:
    method = wanted.encode()
    return lambda info: info.method == method


def _field_has(header: str, value: str) -> _Test:
    name = header.lower().encode()
    if not value.strip():
        return lambda info: info.field(name) is not None
    wanted = credential(name, value.strip().encode())

    def has_value(info: RequestInfo) -> bool:
        # A repeated field has no value: which of its lines the application reads is unknown, and WSGI joins them.
        found = credential(name, (info.single_field(name) or b"").strip())
        return wanted in (found, found.partition(b";")[0].rstrip())

    return has_value
