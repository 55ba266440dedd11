"""The address of a store: where masters keep their histories.

This module opens no connection, and never shows a password: an error or a log contains hosts and ports only.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from headgate.config.section import Address
from headgate.errors import ConfigurationError

_SCHEMES: Final = {"redis": False, "rediss": True, "redis+cluster": False, "rediss+cluster": True}
"""The schemes, and whether they use TLS."""
_DEFAULT_PORT: Final = 6379
_PORT = re.compile(r":[0-9]+$")
_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_EXPECTED: Final = (
    "expected 'memory', redis://HOST:PORT/DATABASE, rediss:// for TLS, or redis+cluster://HOST:PORT,HOST:PORT"
)


@dataclass(frozen=True)
class StoreUrl:
    """A Redis or Valkey server, or some nodes of a cluster."""

    addresses: tuple[Address, ...]
    """The server, or the nodes that are asked for the others."""
    tls: bool = False
    username: str = ""
    password: str = ""
    database: int = 0
    options: tuple[tuple[str, str], ...] = ()
    """Files for TLS, by the names that redis-py has for them."""

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
        if parts.scheme not in _SCHEMES:
            raise _error(text, "unknown scheme")
        credentials, _, hosts = parts.netloc.rpartition("@")
        username, _, password = credentials.partition(":")
        addresses = tuple(_parse_address(text, host) for host in hosts.split(","))
        is_cluster = parts.scheme.endswith("+cluster")
        if len(addresses) > 1 and not is_cluster:
            raise _error(text, "several hosts without +cluster")
        database = parts.path.strip("/")
        if (database and is_cluster) or not re.fullmatch("[0-9]{0,5}", database):
            raise _error(text, "a cluster has database 0 only" if is_cluster else "invalid database number")
        options = tuple(parse_qsl(parts.query, keep_blank_values=True))
        for name, _value in options:
            if name not in _OPTIONS:
                raise _error(text, f"unknown option {name!r}; known are {', '.join(_OPTIONS)}")
        tls = _SCHEMES[parts.scheme]
        if options and not tls:
            raise _error(text, f"option {options[0][0]!r} without TLS")
        return cls(addresses, tls, unquote(username), unquote(password), int(database or 0), options)


def check_store(text: str) -> None:
    """Raise `ConfigurationError` unless `text` is a store."""
    StoreUrl.parse(text)


def _parse_address(text: str, host: str) -> Address:
    try:
        address = Address.parse(host if _PORT.search(host) else f"{host}:{_DEFAULT_PORT}")
    except ConfigurationError:
        raise _error(text, "invalid host or port") from None
    if host.startswith(":") or not host or not address.port:
        raise _error(text, "invalid host or port")
    return address


def _error(text: str, reason: str) -> ConfigurationError:
    # A URL with credentials is not repeated.
    shown = f" {text!r:.80}" if "@" not in text else ""
    return ConfigurationError(f"invalid store{shown}: {reason}; {_EXPECTED}")
