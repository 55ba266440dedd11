"""Which domain a request belongs to: routes are tried in order, the first that matches names the domain.

A route without conditions matches every request, so the last one usually has none. A request that matches no route
belongs to no domain and is not limited.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Annotated, Final, NamedTuple, cast

import msgspec

from headgate.errors import ConfigurationError, fail_if, naming
from headgate.http.conditions import Conditions, Texts, as_tuple
from headgate.http.fields import TOKEN, is_token
from headgate.limit.gatekeeper import Charges
from headgate.limit.messages import credential
from headgate.origin.identify import AddressSet, ByAgent, ClientAddress, Identify, client_address, identify_by
from headgate.origin.request_info import MAX_VALUE_SIZE, RequestInfo, plain_path

_HOST = re.compile(r"[^\s/?#@\\,]+")
_LOWERED = frozenset({"get", "head", "post", "put", "delete", "connect", "options", "trace", "patch"})
# RFC 9110, section 10.1.5: products and comments, here of two levels. WSGI servers join the lines of a repeated field
# with a comma, so none may stand between them. Every repetition is possessive: matching takes linear time.
_USER_AGENT = re.compile(rb"(?:[^,()]++|\((?:[^()]++|\([^()]*+\))*+\))*+")
# The name of a product, also in a comment, but not its version, a part of another name, or a segment of a URL.
_PRODUCT = re.compile(rb"(?<![^\t (;,])" + TOKEN.encode() + rb"(?![^\t /);,])")


class Route(Conditions, frozen=True):
    """What a request must have to belong to `domain`, and how it counts."""

    domain: str
    """The domain's name."""

    unless: Conditions = Conditions()
    """Matches requests that lack one of these conditions; empty matches all."""

    identify: Texts = ""
    """How its requests are attributed to clients: see `identify_by`. Empty for the method of all domains."""

    also: tuple[str, ...] = ()
    """Other domains in which its requests count, too; the longest hold decides."""

    cost: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    """As how many requests each counts, in all of its domains."""

    @property
    def is_plain(self) -> bool:
        """Whether it matches every request, which counts once and as in other domains."""
        return self.is_empty and self.unless.is_empty and not (self.identify or self.also or self.cost != 1)


class _Seen:
    """What the conditions of routes read of a request, each part once."""

    def __init__(self, info: RequestInfo, address: ClientAddress) -> None:
        self.info = info
        self._address = address
        self._values: dict[bytes, tuple[bytes, bytes]] = {}

    @cached_property
    def client(self) -> str:
        """The address of the client; empty if it has none."""
        return self._address.address(self.info)

    @cached_property
    def path(self) -> bytes:
        """The plain path."""
        return plain_path(self.info.path)

    @cached_property
    def host(self) -> bytes:
        """The requested host, in lower case."""
        return self.info.host.lower()

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
            value = credential(name, (self.info.single_field(name) or b"")[: MAX_VALUE_SIZE + 1].strip())
            value = value if len(value) <= MAX_VALUE_SIZE else b""
            self._values[name] = value, value.partition(b";")[0].rstrip()
        return self._values[name]


_Test = Callable[[_Seen], bool]


class _Compiled(NamedTuple):
    tests: tuple[_Test, ...]
    domain: tuple[str, Identify | None]
    others: tuple[tuple[str, Identify | None], ...]
    cost: int


class Routes:
    """Routes in order, compiled once; raises `ConfigurationError` for one that cannot match any request.

    `address` finds the client's address: by default it is that of the connection.
    """

    def __init__(self, routes: Iterable[Route], address: ClientAddress | None = None) -> None:
        listed = tuple(_checked(routes))
        self._address = address or client_address()
        methods: dict[str, Identify] = {}
        for route in listed[::-1]:
            if route.identify:
                with naming(f"domain {route.domain!r}"):
                    methods[route.domain] = identify_by(route.identify, self._address)
        self._compiled: list[_Compiled] = []
        for route in listed:
            own, *others = [(name, methods.get(name)) for name in (route.domain, *route.also)]
            self._compiled.append(_Compiled(_tests(route), own, tuple(others), route.cost))
        conditions = [each for route in listed for each in (route, route.unless) if each.agent]
        self._agents = [text for each in conditions for text in as_tuple(each.agent)]
        self.needs_agents = bool(conditions) or any(isinstance(method, ByAgent) for method in methods.values())
        """Whether requests must have their agent before they are matched."""
        self.domains = tuple(dict.fromkeys(name for route in listed for name in (route.domain, *route.also)))
        """The domains of the routes, each once."""
        self.only: str | None = listed[0].domain if listed and listed[0].is_plain else None
        """The domain of every request, when the first route is plain: then matching is unnecessary."""

    def agents(self) -> frozenset[str]:
        """Return where the keys of the agents are that the routes name; needs the extra `sign`."""
        from headgate.identity import agent_url

        return frozenset(url.fetch for url in map(agent_url, self._agents) if url is not None)

    def match(self, info: RequestInfo) -> str | None:
        """Return the domain of the first route that matches, or None: no domain, not limited."""
        charges = self.charges(info, lambda _info: b"")
        return None if charges is None else charges.domain

    def charges(self, info: RequestInfo, identify: Callable[[RequestInfo], bytes | None]) -> Charges | None:
        """Return what a request counts for, by the first route that matches, or None: no domain, not limited.

        `identify` attributes the requests of domains without a method of their own; None leaves them out.
        """
        seen = _Seen(info, self._address)
        for tests, (name, method), others, cost in self._compiled:
            for test in tests:  # `all` costs a third more
                if not test(seen):
                    break
            else:
                identifier = (method or identify)(info)
                found = [(other, (by or identify)(info)) for other, by in others] if others else ()
                also = tuple([(other, client) for other, client in found if client is not None]) if found else ()
                return None if identifier is None else Charges(name, identifier, also, cost)
        return None


def _checked(routes: Iterable[object]) -> Iterator[Route]:
    """Yield the routes, with tuples for lists; raises `ConfigurationError` for what is not a list of them."""
    for route in routes if isinstance(routes, Iterable) else (None,):
        if not isinstance(route, Route):
            raise ConfigurationError(
                f"expected a list of Route, such as [Route('api', path_prefix='/api/')], got {routes!r:.80}"
            )
        try:
            yield msgspec.convert(msgspec.to_builtins(route), Route)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"domain {route.domain!r}: {error}") from None


def _tests(route: Route) -> tuple[_Test, ...]:
    """Return what a request must pass. Raises `ConfigurationError` for a route that no request can match."""
    with naming(f"domain {route.domain!r}"):
        unless = _made(route.unless)
        return (*_made(route), *((lambda seen: not all(test(seen) for test in unless),) if unless else ()))


def _made(conditions: Conditions) -> tuple[_Test, ...]:
    values = [f"{name} {value!r}" for name in ("value", "prefix", "regex") if (value := getattr(conditions, name))]
    fail_if(len(values) > 1, f"{' and '.join(values)} exclude each other; set only one of them")
    fail_if(values and not conditions.header, f"{''.join(values)} without a header; add header = 'NAME' beside it")
    return tuple(make(conditions) for name, make in _CONDITIONS.items() if getattr(conditions, name))


def _path_starts(route: Conditions) -> _Test:
    for text in as_tuple(route.path_prefix):
        plain = plain_path(text.encode("utf-8", "replace")).decode("utf-8", "replace")
        fail_if(
            text != plain or not plain.startswith("/"),
            f"invalid path_prefix {text!r}; expected it normalized: {'/' + plain.lstrip('/')!r}",
        )
    prefixes = tuple(text.encode("utf-8", "replace") for text in as_tuple(route.path_prefix))
    return lambda seen: seen.path.startswith(prefixes)


def _host_is(route: Conditions) -> _Test:
    for text in as_tuple(route.host):
        fail_if(
            not _HOST.fullmatch(text),
            f"invalid host {text!r}; expected a form such as 'example.org', without scheme and path",
        )
    hosts = frozenset(text.lower().rstrip(".").encode() for text in as_tuple(route.host))
    return lambda seen: not hosts.isdisjoint((seen.host, _without_port(seen.host).rstrip(b".")))


def _without_port(host: bytes) -> bytes:
    """Drop `:8080` from the end; the colons inside an IPv6 literal's brackets stay."""
    name, colon, port = host.rpartition(b":")
    return name if colon and (port.isdigit() or not port) else host


def _method_is(route: Conditions) -> _Test:
    wanted = route.methods
    for method in wanted:
        fail_if(
            not is_token(method) or method in _LOWERED,
            f"unknown method {method!r}; methods are case-sensitive, try {method.upper().strip()!r}",
        )
    methods = frozenset(name.encode() for name in ("HEAD" if "GET" in wanted else wanted[0], *wanted))
    return lambda seen: seen.info.method in methods


def _user_agent_has(route: Conditions) -> _Test:
    fail_if(
        not is_token(route.user_agent) or route.user_agent == "*",
        f"invalid user_agent {route.user_agent!r}; expected one product without its version, such as 'ExampleBot'",
    )
    name = route.user_agent.lower().encode()
    return lambda seen: name in seen.products


def _client_is(route: Conditions) -> _Test:
    clients = AddressSet(route.clients)
    return lambda seen: clients.has(seen.client)


def _agent_is(route: Conditions) -> _Test:
    from headgate.identity import agent_url

    agents = {text: agent_url(text) for text in as_tuple(route.agent) if text != "*"}
    for text, url in agents.items():
        fail_if(url is None, f"invalid agent {text!r}; expected its https URL, such as 'https://bot.example', or '*'")
    if "*" in as_tuple(route.agent):
        return lambda seen: bool(seen.info.agent)
    identifiers = frozenset(url.identifier for url in agents.values() if url is not None)
    return lambda seen: seen.info.agent in identifiers


def _value_is(route: Conditions) -> _Test:
    fail_if(not is_token(route.header), f"invalid header name {route.header!r}; expected one such as 'Sec-Purpose'")
    name, value = route.header.lower().encode(), route.value.strip()
    if route.prefix:
        # The scheme of a credential is in lower case, also where it is not whole.
        prefix = credential(name, route.prefix.encode() + b" ")[:-1]
        return lambda seen: seen.values(name)[0].startswith(prefix)
    if route.regex:
        found = _search(route.regex)
        return lambda seen: bool(value := seen.values(name)[0]) and found(value) is not None
    if not value:
        return lambda seen: seen.info.field(name) is not None
    wanted = credential(name, value.encode())
    return lambda seen: wanted in seen.values(name)


def _search(pattern: str) -> Callable[[bytes], object]:
    """Return the function that looks for `pattern` in linear time; raises `ConfigurationError`."""
    try:
        import re2
    except ImportError:
        raise ConfigurationError(
            f"regex {pattern!r} needs the package google-re2; pip install '.[re2]', or use prefix or value"
        ) from None
    options = re2.Options()
    options.encoding, options.log_errors = re2.Options.Encoding.LATIN1, False
    try:
        return cast("Callable[[bytes], object]", re2.compile(pattern.encode(), options).search)
    except re2.error as error:
        why = error.args[0].decode("utf-8", "replace")
        raise ConfigurationError(f"invalid regex {pattern!r}: {why}; expected the syntax of RE2") from None


_CONDITIONS: Final[dict[str, Callable[[Conditions], _Test]]] = {
    "path_prefix": _path_starts,
    "host": _host_is,
    "methods": _method_is,
    "clients": _client_is,
    "agent": _agent_is,
    "user_agent": _user_agent_has,
    "header": _value_is,
}
"""The conditions by their field, cheap ones first: each checks the field and returns its test."""
