"""What the proxy publishes at a path of its own URL: a page, the same for every client.

Its message is built once, however many clients read it.
"""

from typing import Final


class Page:
    """A body and its media type."""

    __slots__ = ("_last_message", "_message", "body", "fields")

    def __init__(self, media_type: str, body: bytes) -> None:
        self.body: Final = body
        self.fields: Final = (("content-type", media_type), ("content-length", str(len(body))))
        """The fields of a response, names in lower case."""
        self._message = self._head(is_last=False) + body
        self._last_message = self._head(is_last=True) + body

    def message(self, *, is_last: bool, with_body: bool = True) -> memoryview:
        """Return the HTTP/1.1 message: with `Connection: close` if it `is_last`, without the body for HEAD."""
        message = memoryview(self._last_message if is_last else self._message)
        return message if with_body else message[: len(message) - len(self.body)]

    def _head(self, *, is_last: bool) -> bytes:
        lines = ["HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in self.fields)]
        if is_last:
            lines.append("connection: close")
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1")
