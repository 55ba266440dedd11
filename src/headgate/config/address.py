"""Addresses to listen at: HOST:PORT.

This module opens no socket: whether an address is available is known only when it is bound.
"""

import re
from typing import NamedTuple

from headgate.errors import ConfigurationError

_TEXT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^\s:\[\]/@?#]*):(?P<port>[0-9]{1,5})")


def is_host(text: str) -> bool:
    """Return whether `text` can be a host name: resolvers reject names with an empty or too long label."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return True


class Address(NamedTuple):
    """A host and a port; port 0 asks the system for a free port."""

    host: str
    """A name or an address, without brackets; never empty."""
    port: int
    """0 to 65535."""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse ``127.0.0.1:8080``, ``[::1]:8080`` or ``localhost:0``; an empty host means every IPv4 address.

        Raises `ConfigurationError` with the text and an example of a valid address.
        """
        match = _TEXT.fullmatch(text.strip())
        if match is None or int(match["port"]) > 65_535 or not is_host(match["host"]):
            raise ConfigurationError(f"invalid address {text!r}; expected HOST:PORT, such as '127.0.0.1:8080'")
        host = match["host"].removeprefix("[").removesuffix("]")
        return cls(host or "0.0.0.0", int(match["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
