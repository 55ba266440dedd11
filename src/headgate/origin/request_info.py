"""What identifying and matching need to know of a request, whichever server received it.

The gateway fills it from its parser, the middleware from the scope or the environ.
"""

from collections.abc import Iterable

import msgspec


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
