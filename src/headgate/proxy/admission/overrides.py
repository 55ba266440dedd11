"""Where names are that are not looked up: `--resolve HOST=ADDRESS[:PORT]`, a static map like curl's.

It says where to dial, and nothing else: what a host is called, its port under the rules and its advice stay those of
the CONNECT, and the address is checked like any other.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from headgate.errors import ConfigurationError
from headgate.proxy.admission.authority import Authority, parse_host
from headgate.proxy.net.endpoint import Address, Endpoint

__all__ = ["EVERY_NAME", "Overrides"]

EVERY_NAME: Final = "*"
"""Stands for every name without an entry of its own; for no address."""

_where = re.compile(
    r"(?:(?P<ipv4>[0-9.]+)|\[(?P<ipv6>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?|(?P<bare>[0-9A-Fa-f:.]+)"
).fullmatch


class Overrides:
    """The entries of `texts`; those for one host add up, in their order.

    Raises `ConfigurationError` for a text that is no entry.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._entries: dict[str, list[tuple[Address, int | None]]] = {}
        for text in texts:
            host, address, port = _entry(text)
            self._entries.setdefault(host, []).append((address, port))

    def endpoints(self, authority: Authority) -> tuple[Endpoint, ...]:
        """Give where to dial for an authority; nothing where the map does not say."""
        if not self._entries:
            return ()
        entry = self._entries.get(authority.name)
        if entry is None and authority.address is None:
            entry = self._entries.get(EVERY_NAME)
        return tuple(Endpoint(address, port or authority.port) for address, port in entry or ())


def _entry(text: str) -> tuple[str, Address, int | None]:
    name, _, where = text.strip().partition("=")
    host = name if name == EVERY_NAME else parse_host(name)
    match = _where(where)
    if host is not None and match is not None and (name == EVERY_NAME or "*" not in host):
        port = int(match["port"]) if match["port"] else None
        try:
            address = ip_address(match["ipv4"] or match["ipv6"] or match["bare"])
        except ValueError:
            pass  # told of below
        else:
            # Four parts without brackets are IPv4, and brackets are for IPv6 alone.
            if (match["ipv6"] is None or address.version == 6) and (port is None or 1 <= port <= 65_535):
                return host.strip("[]").removesuffix("."), address, port
    raise ConfigurationError(
        f"{text!r} is not HOST=ADDRESS or HOST=ADDRESS:PORT; "
        "try 'www.example.org=127.0.0.1:8443', 'www.example.org=[::1]:8443' or '*=127.0.0.1'"
    )
