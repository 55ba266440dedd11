"""What the proxy publishes of itself at a path of its own URL, beside tunnels: a page, the same for everybody.

Its message is made once, however many read it and however slowly.
"""

from typing import Final

__all__ = ["Page"]


class Page:
    """A body and its media type."""

    __slots__ = ("_last", "_more", "body", "fields")

    def __init__(self, kind: str, body: bytes) -> None:
        self.body: Final = body
        self.fields: Final = (("content-type", kind), ("content-length", str(len(body))))
        """What a response says of it, names in lower case."""
        self._more = self._head(last=False) + body
        self._last = self._head(last=True) + body

    def message(self, *, last: bool, whole: bool = True) -> memoryview:
        """Give the HTTP/1.1 message; after the `last` one the connection ends, and without its body it answers HEAD."""
        message = memoryview(self._last if last else self._more)
        return message if whole else message[: len(message) - len(self.body)]

    def _head(self, *, last: bool) -> bytes:
        lines = ["HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in self.fields)]
        if last:
            lines.append("connection: close")
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1")
