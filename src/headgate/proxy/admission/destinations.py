"""From the target of a CONNECT to the endpoints to connect to: looked up once, and every address checked.

The result is what is connected to, for advice and for the tunnel, and the name is not looked up again: a DNS answer
that changes between check and use does no harm. One forbidden address refuses the name, whatever others it has. The
rules for addresses are those of `headgate.fetch.destinations`.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Final

from headgate.errors import ConfigurationError
from headgate.fetch.destinations import Address, AddressRules
from headgate.proxy.admission.authority import Authority, parse_host
from headgate.proxy.refusal import Refusal
from headgate.proxy.sockets import Endpoint

ANY_NAME: Final = "*"
"""Matches every name without an entry of its own, and no address."""

_MAX_CACHED: Final = 1024
"""Authorities whose endpoints are cached; clients choose them."""

_destination = re.compile(
    r"(?:(?P<ipv4>[0-9.]+)|\[(?P<ipv6>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?|(?P<bare>[0-9A-Fa-f:.]+)"
).fullmatch


class Overrides:
    """Addresses of names that are not looked up: `--resolve HOST=ADDRESS[:PORT]`, like curl's option.

    Entries for one host add up. An entry changes only where to connect: rules, advice and log use the host and port of
    the CONNECT, and the address is checked like any other. Raises `ConfigurationError` for an invalid entry.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._entries: dict[str, list[tuple[Address, int | None]]] = {}
        for text in texts:
            host, address, port = _parse_entry(text)
            self._entries.setdefault(host, []).append((address, port))

    def endpoints(self, authority: Authority) -> tuple[Endpoint, ...]:
        """Return where to connect; empty without an entry."""
        if not self._entries:
            return ()
        entry = self._entries.get(authority.name)
        if entry is None and authority.address is None:
            entry = self._entries.get(ANY_NAME)
        return tuple(Endpoint(address, port or authority.port) for address, port in entry or ())


class Resolver:
    """Resolves under `rules`; names without an entry in `overrides` by `lookup`, which raises `Refusal`.

    `lookup` is given the name and the client that requests it.
    """

    def __init__(
        self,
        rules: AddressRules,
        lookup: Callable[[str, bytes], Awaitable[Sequence[Address]]],
        *,
        overrides: Overrides | None = None,
    ) -> None:
        self._rules = rules
        self._lookup = lookup
        self._cache: dict[str, tuple[Endpoint, ...]] = {}
        self._overrides = overrides or Overrides()

    async def resolve(self, authority: Authority, client: bytes) -> tuple[Endpoint, ...]:
        """Return the endpoints of an authority, at least one; raises `Refusal` "address", and those of the lookup.

        Waits only for names that have to be looked up.
        """
        cached = self._cache.get(authority.origin)
        if cached is not None:
            return cached
        endpoints = self._overrides.endpoints(authority)
        if authority.address is None and not endpoints:
            found = await self._lookup(authority.host, client)
            endpoints = tuple(Endpoint(address, authority.port) for address in found)
            self._check_all(authority, endpoints)
            return endpoints
        if authority.address is not None:
            itself = Endpoint(authority.address, authority.port)
            self._check_all(authority, [itself])
            endpoints = endpoints or (itself,)
        self._check_all(authority, endpoints)
        # What depends on the configuration alone, not on this machine's present addresses, is cached.
        ports = {authority.port, *(endpoint.port for endpoint in endpoints)}
        if not any(map(self._rules.may_change, ports)):
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[authority.origin] = endpoints
        return endpoints

    def _check_all(self, authority: Authority, endpoints: Sequence[Endpoint]) -> None:
        for endpoint in endpoints:
            forbidden = self._rules.forbids(endpoint.address, endpoint.port)
            if forbidden is not None:
                raise Refusal("address", f"{authority} is at {endpoint.host}, which is {forbidden}")


def _parse_entry(text: str) -> tuple[str, Address, int | None]:
    name, _, destination = text.strip().partition("=")
    host = name if name == ANY_NAME else parse_host(name)
    match = _destination(destination)
    if host is not None and match is not None and (name == ANY_NAME or "*" not in host):
        port = int(match["port"]) if match["port"] else None
        try:
            address = ip_address(match["ipv4"] or match["ipv6"] or match["bare"])
        except ValueError:
            pass  # reported below
        else:
            # Four parts without brackets are IPv4, and brackets are for IPv6 alone.
            if (match["ipv6"] is None or address.version == 6) and (port is None or 1 <= port <= 65_535):
                return host.strip("[]").removesuffix("."), address, port
    raise ConfigurationError(
        f"invalid address {text!r}; expected HOST=ADDRESS or HOST=ADDRESS:PORT, such as "
        "'www.example.org=127.0.0.1:8443', 'www.example.org=[::1]:8443' or '*=127.0.0.1'"
    )
