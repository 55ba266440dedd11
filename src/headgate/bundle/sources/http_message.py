"""Parse an HTTP/1 response in an archive: its head, and its body without chunks.

As lenient as browsers for what was received once; a body that is not complete is refused.
"""

import re
from collections.abc import Iterator
from typing import Final, Protocol

from headgate.bundle.sources.skipped import SkipExchange

_STATUS_LINE: Final = re.compile(rb"HTTP/[0-9](?:\.[0-9])?[ \t]+([0-9]{3})(?:[ \t].*)?\r?\n", re.DOTALL)
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\r?\n", re.DOTALL)
_MAX_LINE: Final = 1 << 16
_MAX_HEAD: Final = 1 << 18
_STEP: Final = 1 << 16


class Block(Protocol):
    """The source of a message."""

    def read(self, length: int, /) -> bytes:
        """Return at most so many bytes, none at the end."""

    def readline(self, length: int, /) -> bytes:
        """Return the bytes to the end of the line, at most so many."""


def read_head(block: Block) -> tuple[int, list[tuple[str, str]]]:
    """Read the status and the fields, as Latin-1; raises `SkipExchange` for anything but a response."""
    found = _STATUS_LINE.fullmatch(block.readline(_MAX_LINE))
    if found is None:
        raise SkipExchange("not an HTTP response")
    fields: list[tuple[str, str]] = []
    length = 0
    while line := block.readline(_MAX_LINE).rstrip(b"\r\n"):
        length += len(line)
        if length > _MAX_HEAD:
            raise SkipExchange("a head that is too long")
        name, colon, value = line.decode("latin-1").partition(":")
        if line[:1] in b" \t" and fields:
            # A folded line continues the value before it (RFC 9112, 5.2).
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {line.decode('latin-1').strip()}")
        elif colon:
            fields.append((name.strip(), value.strip()))
    return int(found[1]), fields


def body(block: Block, fields: list[tuple[str, str]]) -> Iterator[bytes]:
    """Yield the body after the head, without chunks; raises `SkipExchange` for a damaged one."""
    codings = [
        part.strip().lower()
        for name, value in fields
        if name.lower() == "transfer-encoding"
        for part in value.split(",")
        if part.strip()
    ]
    if not codings or codings == ["identity"]:
        return _rest(block)
    if codings != ["chunked"]:
        raise SkipExchange("a transfer coding other than chunked")
    return _dechunked(block)


def _rest(block: Block) -> Iterator[bytes]:
    while data := block.read(_STEP):
        yield data


def _dechunked(block: Block) -> Iterator[bytes]:
    line = block.readline(_MAX_LINE)
    if _CHUNK_SIZE.fullmatch(line) is None:
        # Archives remove the chunks and leave the field.
        yield line
        yield from _rest(block)
        return
    while found := _CHUNK_SIZE.fullmatch(line):
        left = int(found[1], 16)
        if not left:
            return
        while left:
            data = block.read(min(left, _STEP))
            if not data:
                raise SkipExchange("cut short")
            left -= len(data)
            yield data
        if block.readline(_MAX_LINE) not in (b"\r\n", b"\n", b""):
            raise SkipExchange("damaged within its chunks")
        line = block.readline(_MAX_LINE)
    raise SkipExchange("damaged within its chunks" if line else "cut short")
