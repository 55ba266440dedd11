"""Decode the content codings gzip and deflate, which some servers send without being asked."""

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from headgate.bundle.sources.selection import SkipExchange

_OUTPUT_SIZE = 1 << 16
"""Approximate maximum of bytes returned at a time: a small body may decode to an enormous one."""
_GZIP = 16 + zlib.MAX_WBITS


class DecodingError(SkipExchange):
    """A body that is damaged or cut within its content coding."""


def parse_codings(content_encoding: str) -> list[str]:
    """Return the codings in a Content-Encoding, in lower case, in the order that they were applied."""
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    return [coding for coding in codings if coding not in ("", "identity")]


def limit_length(chunks: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield the chunks of a body; raises `SkipExchange` where there are more than `max_bytes`."""
    length = 0
    for chunk in chunks:
        length += len(chunk)
        if length > max_bytes:
            raise SkipExchange(f"a body of more than {max_bytes} bytes")
        yield chunk


def decode_chunks(chunks: Iterable[bytes], coding: str) -> Iterator[bytes]:
    """Yield the bytes without their coding, one of `DECODERS`; an empty body stays empty.

    Raises `DecodingError` for a damaged or cut body.
    """
    decompressor: _Inflate | None = None
    for chunk in chunks:
        if decompressor is None and chunk:
            decompressor = _Inflate(_raw_or_zlib(chunk) if coding == "deflate" else _GZIP)
        if decompressor is None:
            yield chunk
        else:
            yield from decompressor.decompress(chunk)
    if decompressor is not None and not decompressor.is_whole():
        raise DecodingError("cut short within its content coding")


class _Inflate:
    """gzip, of any number of members, and deflate with or without its wrapper."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inflate = zlib.decompressobj(wbits)

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        while True:
            if self._inflate.eof:
                if self._wbits != _GZIP or not chunk.startswith(b"\x1f"):
                    return  # what follows the end is ignored
                self._inflate = zlib.decompressobj(self._wbits)
            try:
                out = self._inflate.decompress(chunk, _OUTPUT_SIZE)
            except zlib.error as error:
                raise DecodingError("damaged within its content coding") from error
            yield out
            chunk = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if not chunk and len(out) < _OUTPUT_SIZE:
                return

    def is_whole(self) -> bool:
        return self._inflate.eof


def _raw_or_zlib(first: bytes) -> int:
    """Many servers send deflate without the zlib wrapper, which begins with the compression method 8."""
    return zlib.MAX_WBITS if first[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS


DECODERS: Final = frozenset({"gzip", "x-gzip", "deflate"})
"""The codings that can be decoded."""
