"""The address of a store: where masters keep their histories.

This module opens no connection, and never shows a password: an error or a log contains hosts and ports only.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from headgate.config.section import Address
from headgate.errors import ConfigurationError

_SCHEME = re.compile(r"redis(s)?(?:\+(cluster|sentinel))?")
_DEFAULT_PORTS: Final = {"": 6379, "cluster": 6379, "sentinel": 26379}
_PORT = re.compile(r":[0-9]+$")
_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_EXPECTED: Final = (
    "expected 'memory', redis://HOST:PORT/DATABASE, redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DATABASE or "
    "redis+cluster://HOST:PORT,HOST:PORT; rediss… for TLS"
)


@dataclass(frozen=True)
class StoreUrl:
    """Where a store is."""

    addresses: tuple[Address, ...]
    """The server, the Sentinels that are asked for it, or the nodes that are asked for the others of a cluster."""
    kind: str = ""
    """`cluster`, `sentinel`, or empty for one server."""
    service: str = ""
    """The name by which Sentinels know the server."""
    tls: bool = False
    username: str = ""
    password: str = ""
    database: int = 0
    options: tuple[tuple[str, str], ...] = ()
    """Files for TLS, by the names that redis-py has for them."""

    def __str__(self) -> str:
        """Return the addresses, and the service of Sentinels."""
        hosts = ",".join(map(str, self.addresses))
        return f"{hosts}/{self.service}" if self.service else hosts

    @classmethod
    def parse(cls, text: str) -> "StoreUrl | None":
        """Parse the text of `master.store`; return None for ``memory``.

        Raises `ConfigurationError` with what is expected.
        """
        if text == "memory":
            return None
        try:
            parts = urlsplit(text)
        except ValueError:
            raise _error(text, "malformed URL") from None
        scheme = _SCHEME.fullmatch(parts.scheme)
        if scheme is None:
            raise _error(text, "unknown scheme")
        tls, kind = bool(scheme[1]), scheme[2] or ""
        credentials, _, hosts = parts.netloc.rpartition("@")
        username, _, password = credentials.partition(":")
        addresses = tuple(_parse_address(text, kind, host) for host in hosts.split(","))
        if len(addresses) > 1 and not kind:
            raise _error(text, "several hosts without +sentinel or +cluster")
        service, database = "", parts.path.strip("/")
        if kind == "sentinel":
            service, _, database = database.partition("/")
            if not service:
                raise _error(text, "Sentinels need the name of a service")
        if (database and kind == "cluster") or not re.fullmatch("[0-9]{0,5}", database):
            raise _error(text, "a cluster has database 0 only" if kind == "cluster" else "invalid database number")
        options = _parse_options(text, parts.query, tls=tls)
        return cls(
            addresses, kind, unquote(service), tls, unquote(username), unquote(password), int(database or 0), options
        )


def _parse_options(text: str, query: str, *, tls: bool) -> tuple[tuple[str, str], ...]:
    options = tuple(parse_qsl(query, keep_blank_values=True))
    for name, _value in options:
        if name not in _OPTIONS:
            raise _error(text, f"unknown option {name!r}; known are {', '.join(_OPTIONS)}")
    if options and not tls:
        raise _error(text, f"option {options[0][0]!r} without TLS")
    return options


def _parse_address(text: str, kind: str, host: str) -> Address:
    try:
        address = Address.parse(host if _PORT.search(host) else f"{host}:{_DEFAULT_PORTS[kind]}")
    except ConfigurationError:
        raise _error(text, "invalid host or port") from None
    if host.startswith(":") or not host or not address.port:
        raise _error(text, "invalid host or port")
    return address


def _error(text: str, reason: str) -> ConfigurationError:
    # A URL with credentials is not repeated.
    shown = f" {text!r:.80}" if "@" not in text else ""
    return ConfigurationError(f"invalid store{shown}: {reason}; {_EXPECTED}")
